"""Runs the engine: opens the journal, leads or waits, runs one worker per cloud, and applies new configuration.

start ─▶ lead? ─▶ load the journal ─▶ one worker per cloud ─▶ new clouds listed? ─▶ serve
            └ no: answer UNAVAILABLE, and wait for the lease     └ no: answer UNAVAILABLE, for a short time
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cloudgraft.engine.change_publisher import ChangePublisher
from cloudgraft.engine.clock import Clock, SystemClock, wall_time
from cloudgraft.engine.context import EngineContext, Losses
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.desired import Composer, DesiredState, Joining
from cloudgraft.engine.groups.resolution import Groups
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.guards import DeleteGuard, GuardUsage, GuardUse, tally
from cloudgraft.engine.leadership import HeldCalls, Leadership, LeaseLike, SoleLease
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.states import was_released
from cloudgraft.engine.machines.traces import MachineTraces
from cloudgraft.engine.maintenance import Maintenance
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.nodes.tracking import Cluster, Nodes, UserData
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.engine.startup_gate import StartupGate
from cloudgraft.engine.worker_pool import WorkerPool
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.common.tracing import Tracer
from cloudgraft.sdk.driver import DriverTraits
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.sdk.provider import ReadyReplies
from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.journal import Journal, JournalUnavailableError
from cloudgraft.store.records import Change, Contents, ErrorRecord, MachineRecord, State

log = logging.getLogger("cloudgraft.engine")

_MAINTENANCE: Final = "/maintenance"  # key of the engine's own task; no cloud can have this name
_JOURNAL: Final = "/journal"
_PROBE: Final = 1.0
_LAST_CALLS: Final = 2.0  # seconds that calls under way get when the process stops


class Engine:
    """Serves machines of several clouds as node groups that survive crashes, hangs, wrong lists and late answers."""

    def __init__(  # noqa: PLR0913 - all but two have defaults
        self,
        desired_state: DesiredState,
        journal: Journal,
        *,
        clock: Clock | None = None,
        lease: LeaseLike | None = None,
        on_fenced: Callable[[], Awaitable[None]] | None = None,
        is_stepped: bool = False,
        cluster: Cluster | None = None,
        user_data: UserData | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Prepares the engine; :meth:`start` starts it.

        ``lease`` is shared with other replicas; without one this process leads for as long as it has the journal open.
        ``on_fenced`` is awaited when another replica took over. With ``is_stepped`` no loop runs: the caller makes
        every :meth:`turn`, on its own clock. ``cluster`` is the cluster that machines join and ``user_data`` makes
        their user data; the caller starts and closes both. With a ``tracer``, each order has a trace.
        """
        self.clock = clock or SystemClock()
        self.fleet = Fleet()
        self.journal = journal
        sole = SoleLease(lambda: journal.fenced_by)
        self._leadership = Leadership(
            lease or sole, on_elected=self._lead, on_fenced=self._follow, on_end=self._close_replies
        )
        self._held_calls = HeldCalls(self._leadership)
        self._replies: list[ReadyReplies] = []
        self.writer = Writer(journal, self.fleet, self.clock, reload=self._load, on_fenced=self._leadership.fence)
        self.groups = Groups(self.fleet, self.writer, self.clock, desired_state)
        self._traces = MachineTraces(tracer) if tracer is not None else None
        if self._traces is not None:
            self.fleet.watch(self._traces)
            self.writer.subscribe(self._traces.tell)
            self.writer.around = self._traces.around
        self._context = EngineContext(
            fleet=self.fleet,
            writer=self.writer,
            clock=self.clock,
            identity=Identity(desired_state.cluster, ""),
            settings=desired_state.settings,
            guard_usage=GuardUsage(desired_state.settings.guards, {}),
            may_act=self._leadership.is_leader,
            is_configured=lambda cloud: cloud in self._desired_state.clouds,
            is_placed=self.groups.is_placed,
            nodes=Nodes(),
            deletions=DeleteGuard(),
            losses=Losses(),
            observes_only=self.observes_only,
            traces=self._traces,
        )
        self._worker_pool = WorkerPool(self._context, is_stepped=is_stepped)
        self._maintenance = Maintenance(journal, self.writer, self._context)
        self._join(Joining(cluster=cluster, user_data=user_data))
        self._desired_state = desired_state
        self._pending: DesiredState | None = None
        self._pending_joining: Joining | None = None
        self._is_stepped = is_stepped
        self._is_replica = lease is not None
        self._waiting_for = ""  # why the journal is not open yet
        self._is_serving = False
        self._startup_gate = StartupGate(
            self.fleet, self._worker_pool.workers.keys(), self.refresh, self._why_not_listed
        )
        self.on_fenced = on_fenced
        self.composer: Composer | None = None  # without one, groups that operators declared are not served
        self._had_declared = False  # the configuration may contain groups that operators declared
        self._refreshing = asyncio.Lock()
        self._epoch = 0  # of this process's latest leadership
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> EngineSettings:
        """The settings for all clouds and groups."""
        return self._desired_state.settings

    @property
    def identity(self) -> Identity:
        """The identity of the cluster that this engine serves."""
        return self._context.identity

    @property
    def workers(self) -> dict[str, Worker]:
        """The workers by cloud."""
        return self._worker_pool.workers

    @property
    def nodes(self) -> Nodes:
        """The node tracking of the cluster."""
        return self._context.nodes

    @property
    def guard_usage(self) -> GuardUsage:
        """The usage that counts against the guards."""
        return self._context.guard_usage

    @property
    def database_clock(self) -> DatabaseClock:
        """The offset of this host's clock from the clock of the shared database."""
        return self._leadership.clock

    def check_leader(self) -> None:
        """Raises UnavailableError when this process does not lead and so may not act."""
        if not self._leadership.is_leader() or not self._is_serving:
            raise UnavailableError(self._why_not_leading())

    def check_open(self) -> None:
        """Raises UnavailableError when the autoscaler may not be answered; checked before each of its calls."""
        self.check_leader()
        if self._startup_gate.awaited:
            raise UnavailableError(self._startup_gate.trouble())

    def answers_until(self) -> float:
        """Until when calls may be answered without another check, by CLOCK_BOOTTIME; 0 when they may not be."""
        is_open = self._leadership.is_leader() and self._is_serving and not self._startup_gate.awaited
        return self._leadership.deadline if is_open else 0.0

    def keep_ready(self, replies: ReadyReplies) -> None:
        """Publishes every change to ``replies``, and closes them when this process no longer leads."""
        self.fleet.watch(ChangePublisher(self.fleet, self.groups, replies))
        self._replies.append(replies)

    def _close_replies(self) -> None:
        for replies in self._replies:
            replies.close()

    @property
    def hands_over(self) -> bool:
        """Whether another replica takes over when this process, which leads, stops."""
        return self._is_replica and self._leadership.is_leader()

    def opening_trouble(self) -> str:
        """Why calls are refused until clouds are listed for the first time; empty when they are answered."""
        return self._startup_gate.trouble()

    def _why_not_leading(self) -> str:
        return self._waiting_for or self._leadership.trouble() or "the journal is being read"

    def trouble(self) -> str:
        """Why callers should not use this process; empty when they may."""
        if not self._leadership.is_leader() or not self._is_serving:
            return self._why_not_leading()
        if self.writer.trouble:
            return f"the journal cannot be written: {self.writer.trouble}"
        if self._startup_gate.awaited:
            return self._startup_gate.trouble()
        if self.fleet.adopted_clouds:
            return ""  # a blocked cloud must not keep the engine from serving the others
        return next((w.observer.blocked for w in list(self.workers.values()) if w.observer.blocked), "")

    def readiness(self) -> str:
        """As :meth:`trouble`, but empty also for a replica that is about to take over from an earlier rollout."""
        return "" if self._leadership.is_next() else self.trouble()

    async def wait_to_lead(self, seconds: float) -> None:
        """Returns when this replica, which is about to take over, leads; or when it does not, after ``seconds``.

        Whoever is still connected then should look for the leader elsewhere.
        """
        if await self._held_calls.wait(seconds) and self.on_fenced is not None:
            await self.on_fenced()

    def observes_only(self, cloud: str) -> bool:
        """Whether the engine may only observe a cloud."""
        declared = self._desired_state.clouds.get(cloud)
        return declared is not None and declared.settings.observe_only

    def guard_use(self) -> list[GuardUse]:
        """The usage of every guard that is set."""
        return [*self.guard_usage.use(), *self._context.deletions.use(self.clock.now())]

    @property
    def is_config_pending(self) -> bool:
        """Whether a new configuration waits for the next Refresh."""
        return self._pending is not None

    def is_pending(self, group: str) -> bool:
        """Whether the configuration that waits for the next Refresh has this group."""
        return self._pending is not None and any(declared.id == group for declared in self._pending.groups)

    def traits(self, cloud: str) -> DriverTraits:
        """The traits that the cloud's driver declares."""
        worker = self.workers.get(cloud)
        return worker.driver.traits if worker else DriverTraits()

    def refusal(self, cloud: str) -> ErrorRecord | None:
        """Why a machine requested now in this cloud would fail; None when nothing speaks against it."""
        worker = self.workers.get(cloud)
        if worker is None:
            return ErrorRecord(code="no_cloud", message=f"cloud {cloud} is not configured", error_class=99)
        return worker.refusal()

    def is_forgotten(self, record: MachineRecord) -> bool:
        """Whether a machine was released, or has been gone for longer than its Node object may outlive it (R24)."""
        if record.state is not State.GONE:
            return False
        memory = self.settings.node_memory.total_seconds()
        is_old = record.gone_at is not None and self.clock.now() - record.gone_at > memory
        return is_old or was_released(record)

    def left_out(self) -> dict[str, str]:
        """Groups that are not served, and why."""
        return self.groups.left_out(self._why_not_listed)

    def _why_not_listed(self, cloud: str) -> str:
        worker = self.workers.get(cloud)
        return (worker.observer.blocked or worker.observer.health.error or worker.catalog.error) if worker else ""

    # -- start, stop, configuration ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the journal and begins to lead, unless another process does.

        Waits for a database that is unavailable: a replica must not be restarted for that.
        """
        try:
            await self.journal.open()
        except JournalUnavailableError as error:
            if not self._is_replica:
                raise
            self._waiting_for = error.message
            self._tasks[_JOURNAL] = asyncio.create_task(self._open_later(), name="open the journal")
        else:
            await self._leadership.start()

    async def _open_later(self) -> None:
        told = ""
        while self._waiting_for:
            if self._waiting_for != told:  # once, not at every attempt
                told = self._waiting_for
                log.warning("waiting for the journal: %s", told)
            await asyncio.sleep(_PROBE)
            try:
                await self.journal.open()
            except CloudgraftError as error:
                self._waiting_for = error.message
            else:
                self._waiting_for = ""
        await self._leadership.start(is_patient=True)

    async def close(self) -> None:
        """Gives calls under way a moment to end, and closes the journal."""
        self._worker_pool.last_calls = _LAST_CALLS
        journal = self._tasks.pop(_JOURNAL, None)
        if journal is not None:
            await _cancelled(journal)
        await self._leadership.stop()
        await self.journal.close()

    async def turn(self) -> None:
        """Makes one pass of every worker, for a stepped engine."""
        await self._worker_pool.turn()
        await self._startup_gate.look()

    def reconfigure(self, desired_state: DesiredState, joining: Joining | None = None) -> None:
        """Takes a new configuration, which the next Refresh applies (R4). Without ``joining``, that stays unchanged.

        The engine uses the old configuration until then; :attr:`joining` returns the one in use.
        """
        self._pending, self._pending_joining = desired_state, joining or self._pending_joining

    @property
    def joining(self) -> Joining:
        """The cluster and the user data in use."""
        return Joining(cluster=self.nodes.cluster, user_data=self._context.user_data)

    def _join(self, joining: Joining) -> None:
        self._context.user_data = joining.user_data
        if joining.cluster is not self.nodes.cluster:
            self.nodes.exchange(joining.cluster)
            if joining.cluster is not None:
                joining.cluster.listen(self._on_nodes)

    def _on_nodes(self) -> None:
        for worker in self.workers.values():
            worker.on_nodes()

    async def refresh(self) -> None:
        """Applies changes of the configuration and of the clouds' offers."""
        await self.writer.probe()
        async with self._refreshing:
            await self._take_pending()
            await self._apply()

    async def _apply(self) -> None:
        """Reconciles groups and clouds with the configuration, and publishes the resulting groups."""
        catalogs = {name: w.catalog.known for name, w in self.workers.items() if w.catalog.known is not None}
        await self.groups.apply(self._desired_state, catalogs)
        for name, worker in list(self.workers.items()):
            if name not in self.fleet.adopted_clouds:
                await worker.observer.take_in()
        self.groups.publish()

    async def _take_pending(self) -> None:
        wanted = self._pending
        if wanted is not None:
            await self._exchange(wanted)
            if self._pending is wanted:  # else the configuration has changed again
                self._pending = None

    # -- leading -----------------------------------------------------------------------------------------------------

    async def _lead(self, epoch: int) -> None:
        if epoch > self._epoch + 1:
            self.writer.forget_doubts()
        self._epoch = epoch
        contents = await self.journal.load()
        if isinstance(self.clock, SystemClock):  # tests and the demo have their own clock
            self.clock.go_on(contents.latest_at, contents.progress)
        self._context.identity = Identity(self.identity.cluster, contents.cluster_id, not contents.is_id_new)
        self._load(contents)
        await self._context.recall(self.journal)
        self._had_declared |= bool(contents.declared)
        if self._had_declared and self.composer is not None:  # also when another leader removed the last of them
            async with self.composer.turn:
                self.reconfigure(*await self.composer.compose(contents.declared))
        # This process has only read the configuration that the last leader applied. Apply it now: a change of leader
        # must not make groups come and go.
        await self._exchange(self._pending or self._desired_state)
        self._pending = None
        await self._first_look()
        await self._apply()
        if epoch > 1:
            message = f"this process leads now (epoch {epoch})"
            await self.writer.write(lambda: Change(events=(happened("leader", self.clock.now(), message),)))
        time = self.clock.now if self._is_stepped else asyncio.get_running_loop().time
        self._startup_gate.begin(self.settings.first_list_timeout, time, is_stepped=self._is_stepped)
        self._is_serving = True
        if not self._is_stepped:
            self._tasks[_MAINTENANCE] = asyncio.create_task(self._maintenance.run(), name="maintenance")

    async def _follow(self, reason: str) -> None:
        """Stops everything that only a leader may do."""
        self._is_serving = False
        ending = self._worker_pool.dismiss()
        if self.on_fenced is not None:
            await self.on_fenced()  # before anything that may hang: the autoscaler must find the new leader
        await self._startup_gate.stop()
        maintenance = self._tasks.pop(_MAINTENANCE, None)
        if maintenance is not None:
            await _cancelled(maintenance)
        if ending:
            await asyncio.wait(ending)
        await self.writer.drain()
        if self._traces is not None:
            self._traces.stop(reason)

    def _load(self, contents: Contents) -> None:
        self._had_declared |= bool(self.fleet.declared)
        self.groups.load(contents)
        for worker in self.workers.values():
            worker.nudge(needs_look=False)  # a journal that fails repeatedly must not cause calls to clouds

    async def _first_look(self) -> None:
        """Waits briefly for clouds that were never listed: most lists take a moment."""
        await self._worker_pool.first_look(set(self.workers) - self.fleet.adopted_clouds)

    # -- clouds ------------------------------------------------------------------------------------------------------

    async def _exchange(self, desired_state: DesiredState) -> None:
        """Applies a configuration: joining, guards, settings, and one worker for each cloud."""
        old, self._desired_state = self._desired_state, desired_state
        if self._pending_joining is not None:
            self._join(self._pending_joining)
            self._pending_joining = None
        limits = {name: cloud.settings.guards for name, cloud in desired_state.clouds.items()}
        tallies = {name: self.guard_usage.tallies[name] for name in limits if name in self.guard_usage.tallies}
        for name, machines in self.fleet.active.items():  # those of clouds that were removed still cost
            if name not in limits:
                tallies[name] = tally(machines.values(), (), self.clock.now(), wall=wall_time(self.clock))
        self._context.guard_usage = GuardUsage(desired_state.settings.guards, limits, tallies)
        self._context.settings = desired_state.settings
        self._context.deletions.configure(desired_state.settings.guards, limits)
        await self._worker_pool.exchange(old.clouds, desired_state.clouds)

    # -- maintenance -------------------------------------------------------------------------------------------------

    async def clean(self) -> None:
        """Deletes records and events past their retention."""
        await self._maintenance.clean()


async def _cancelled(task: asyncio.Task[object]) -> None:
    """Cancels a task and waits for its end, ignoring how it ended."""
    task.cancel()
    await asyncio.wait({task})
