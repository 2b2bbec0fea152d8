"""Runs the loop of one cloud: observes it, decides about each of its machines, and carries out the decisions.

One list at a time, a limited number of other calls, and nothing that another cloud or an RPC waits for. A worker keeps
all its state beside the journal in observations. A restart may lose them: the worker observes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Iterable

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.fleet import Group
from cloudgraft.engine.groups.desired import Catalog
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines import outcomes
from cloudgraft.engine.machines.decide import (
    DOUBLE,
    JOIN_DEADLINE,
    RETURNED,
    Create,
    Decision,
    Delete,
    Move,
    Situation,
    Stay,
    decide,
    failure,
    in_doubt,
    left_alone,
)
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import is_released
from cloudgraft.engine.new_records import about
from cloudgraft.engine.nodes.credential_revocation import CredentialRevocation
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.engine.reconcile.machine_nodes import NodeClaims, NodeScan
from cloudgraft.engine.reconcile.observer import SLICE, Observer
from cloudgraft.engine.reconcile.policies import OrphanCleanup, Repairer
from cloudgraft.engine.reconcile.sender import Sender
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.common.tracing import leave_span
from cloudgraft.sdk.driver import Driver, Machine
from cloudgraft.sdk.errors import CloudgraftError, ErrorClass
from cloudgraft.store.journal import JournalBrokenError, JournalUnavailableError
from cloudgraft.store.records import Change, ErrorRecord, Event, MachineRecord, Presence, State

# -- the catalog: machine types and prices -----------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.engine")


class CatalogReader:
    """Keeps the shapes and prices of one cloud. The last answer is valid until the next one."""

    def __init__(self, caller: Caller, clock: Clock) -> None:
        self.known: Catalog | None = None  # None until the cloud has answered
        self.error = ""  # why the latest read failed
        self._caller = caller
        self._clock = clock
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Waits for the first answer, without which groups may not be served; later reads run in the background.

        So a cloud with slow prices is listed as often as any other.
        """
        if self.known is None:
            await self._read()
        elif self._is_due() and self._reading is None:
            self._reading = asyncio.create_task(self._read(), name=f"what {self._caller.settings.name} offers")
            self._reading.add_done_callback(self._done)

    async def done(self) -> None:
        """Waits for a read under way."""
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def stop(self) -> None:
        """Cancels a read under way."""
        if self._reading is not None:
            self._reading.cancel()
            await self.done()

    def _is_due(self) -> bool:
        return self._clock.now() - self._read_at >= self._caller.traits.catalog_lasts.total_seconds()

    async def _read(self) -> None:
        cloud, now = self._caller.settings.name, self._clock.now()
        try:
            self.known, self._read_at = await self._caller.catalog(), now
            self.error = ""
        except CloudgraftError as error:
            message = f"cloud {cloud} does not report its machine types and prices: {error.message}"
            if message != self.error:  # once, not at every attempt
                log.warning("cannot read a cloud's catalog", extra={"cloud": cloud, "error": error.message})
            self.error = message

    def _done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is not None:
            log.error("reading the machine types and prices of a cloud failed", exc_info=reading.exception())


_BATCH = 250  # records that the loop writes in one transaction
_REST = 1.0  # seconds after a step that failed: the cause may wake the loop at once, again and again
_UNWANTED = frozenset({State.FAILED, State.DELETING})
_JOURNAL = (JournalUnavailableError, JournalBrokenError)


class Worker:
    """Reconciles the machines of one cloud."""

    def __init__(self, driver: Driver, settings: CloudSettings, context: EngineContext) -> None:
        self.name = settings.name
        self.driver = driver
        self.settings = settings
        self.caller = Caller(
            driver,
            settings,
            context.clock,
            may_act=context.may_act,
            on_outcome=self._wake_up,
            traces=context.traces,
        )
        self.observer = Observer(settings.name, self.caller, context)
        self.catalog = CatalogReader(self.caller, context.clock)
        self.looked = asyncio.Event()  # set after the first observation of the cloud, successful or not
        self.node_scan = NodeScan(self.observer, context)
        self._node_claims = NodeClaims(self.observer, context)
        self._credential_revocation = CredentialRevocation(context, on_done=self._wake_up)
        self._sender = Sender(self.caller, self.observer, context, self._situation, self._make_due)
        self.repairer = Repairer(self.observer, context, self.refusal)
        self._orphan_cleanup = OrphanCleanup(self.observer, self.caller, context)
        self._context = context
        self._wake = asyncio.Event()
        self._look = asyncio.Event()
        self._due: dict[str, None] = {}  # to be decided about
        self._alarms: list[tuple[float, str]] = []
        self._alarm_of: dict[str, float] = {}

    # -- for the engine ----------------------------------------------------------------------------------------------

    def refusal(self) -> ErrorRecord | None:
        """Why a machine requested now would not come; None when it may."""
        if self.observer.blocked:
            return ErrorRecord(code="blocked", message=self.observer.blocked, error_class=ErrorClass.OTHER)
        return self.observer.health.refusal()

    def configure(self, settings: CloudSettings) -> None:
        """Applies new settings; the driver stays."""
        self.settings = self.caller.settings = settings
        self.nudge()

    def until_next_list(self) -> float:
        """Seconds until the cloud is listed again, unless something happens that needs a list."""
        health, is_hurried = self.observer.health, self.observer.is_hurried()
        return outcomes.until_next_list(self.settings, health.failures, health.retry_after, is_hurried=is_hurried)

    async def close(self, seconds: float) -> None:
        """Gives calls under way some time to end, and closes the driver."""
        await self._credential_revocation.stop()
        await self.catalog.stop()
        await self.caller.stop(seconds)
        with contextlib.suppress(CloudgraftError):  # else a list shows the outcome after the restart
            await self._sender.take_outcomes()
        await self.caller.close()

    def on_change(self, record: MachineRecord) -> None:
        """Handles a changed record of this cloud."""
        self._node_claims.note(record)
        self.node_scan.follow(record)
        self._make_due(record.name)

    def on_nodes(self) -> None:
        """Handles nodes that have come, gone or changed."""
        self.node_scan.note()
        self._wake_up()

    def nudge(self, *, needs_look: bool = True) -> None:
        """Decides about all machines again, after a change beside their records, such as a pause."""
        self._due.update(dict.fromkeys(self._context.fleet.in_cloud(self.name)))
        self._node_claims.begin_anew()
        self._wake_up()
        if needs_look:
            self._look.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        leave_span()  # a Refresh that brought a new cloud started this task
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_observing(), name=f"observe {self.name}")
            group.create_task(self._keep_acting(), name=f"act {self.name}")

    async def turn(self) -> None:
        """Makes one pass: lists the cloud, then acts until no call is under way. For tests and the demo."""
        await self.observe()
        await self.catalog.done()
        await self.act()
        while self.caller.under_way or self._wake.is_set():
            self._wake.clear()
            await self.caller.settled()
            await self._credential_revocation.done()
            await self.act()
        await self._credential_revocation.done()

    async def observe(self) -> None:
        """Lists the cloud, and evaluates all its machines."""
        try:
            await self.node_scan.call()  # first: of duplicates, the machine that joined is kept
            is_up = await self.observer.observe()
            await self._node_claims.review()
            if is_up:
                await self.catalog.look()
                await self.repairer.repair()
                await self._orphan_cleanup.sweep()
                await self.node_scan.study()
        finally:
            self.looked.set()
            listing, known = self.observer.listing, self._context.fleet
            self._due.update(dict.fromkeys(known.in_cloud(self.name)))
            self._due.update(dict.fromkeys(self._node_claims.gone))
            self._due.update(dict.fromkeys(r.name for r in known.released.values() if r.cloud == self.name))
            if listing is not None:
                self._due.update(dict.fromkeys(name for name in listing.by_name if name in known.machines))
            self._wake_up()

    async def act(self) -> None:
        """Records outcomes, decides about every machine that is due, and sends as many calls as limits allow."""
        await self._sender.take_outcomes()
        now = self._context.clock.now()
        self._context.nodes.watch(now)
        self._due.update(dict.fromkeys(await self.node_scan.call(only_news=True)))
        self._sound_alarms(now)
        moves: list[Move] = []
        tell: list[Event] = []
        names, self._due = list(self._due), {}
        async for some in in_slices(names, SLICE):
            for name in some:
                self._sort(name, now, moves, tell)
        if tell:
            await self._context.writer.write(lambda: Change(events=tell))
        for start in range(0, len(moves), _BATCH):
            await self._write(moves[start : start + _BATCH])
        await self._node_claims.hand(now)
        self._credential_revocation.go_on(now)
        await self._sender.send()

    # -- the two loops -----------------------------------------------------------------------------------------------

    async def _keep_observing(self) -> None:
        while True:
            self._look.clear()  # before the list: changes during the list may not be in it
            try:
                await self.observe()
            except _JOURNAL as error:  # the writer has logged it; the observer handles errors of the cloud
                log.debug("an observation was not recorded", extra={"cloud": self.name, "error": error.message})
            except Exception:  # a bug must not end the loop that everything hangs on
                log.exception("an observation failed", extra={"cloud": self.name})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.until_next_list()):
                    await self._look.wait()

    async def _keep_acting(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.act()
            except _JOURNAL as error:
                # Write-ahead: without a journal nothing is done. The next list makes the same machines due again.
                log.debug("no action without the journal", extra={"cloud": self.name, "error": error.message})
                await asyncio.sleep(_REST)
            except Exception:  # a bug must not end the loop that everything hangs on
                log.exception("a step of the loop failed", extra={"cloud": self.name})
                await asyncio.sleep(_REST)

    def _pause(self) -> float | None:
        alarm = self._alarms[0][0] if self._alarms else None
        rate = self.caller.wake_at() if self._sender.is_waiting else None
        others = (self._node_claims.wake_at(), self._credential_revocation.wake_at(), self.node_scan.wake_at())
        times = [at for at in (alarm, rate, *others) if at is not None]
        return max(0.0, min(times) - self._context.clock.now()) if times else None

    def _wake_up(self) -> None:
        self._wake.set()

    def _make_due(self, name: str) -> None:
        self._due[name] = None
        self._wake_up()

    # -- deciding ----------------------------------------------------------------------------------------------------

    def _sort(self, name: str, now: float, moves: list[Move], tell: list[Event]) -> None:
        """Decides about one machine, and queues the resulting action."""
        record = self._context.fleet.machines.get(name)
        if record is None:
            self.observer.forget(name)
            return
        observation = self.observer.see(record)
        self._credential_revocation.consider(record, observation, now)
        situation = self._situation(record, observation, now)
        decision = decide(record, observation, situation)
        self.observer.held.pop(name, None)
        if self._context.observes_only(self.name) and (what := _withheld(record, decision)):
            tell += self.observer.withhold(record, what, now).events
            return
        match decision:
            case Move():
                moves.append(decision)
            case Create():
                self._sender.creates[name] = None
            case Delete():
                self._sender.deletes[name] = None
            case Stay(wake_at):
                self._set_alarm(name, wake_at)
                is_told = record.state in _UNWANTED or record.is_adopted
                unproven = observation.listed.unproven
                if unproven is not None and is_told and self.observer.is_news(name, "unproven"):
                    tell.append(_unproven(record, unproven, now))
                if doubt := in_doubt(record, observation):
                    self.observer.held[name] = doubt
                    if self.observer.is_news(name, doubt):
                        tell.append(about(record, now, doubt, kind=DOUBLE))
                if situation.is_used and (why := left_alone(record, observation)) and self.observer.is_news(name, why):
                    tell.append(about(record, now, why, kind=RETURNED))
                is_over = record.state is State.GONE and not is_released(record)
                if is_over and observation.listed.machine is None and not observation.calls.is_open:
                    self.observer.forget(name)

    def _situation(self, record: MachineRecord, observation: Observation, now: float) -> Situation:
        context = self._context
        refusal = None
        back = observation.listed.machine if record.state is State.GONE else None
        if record.state is State.REQUESTED:
            refusal = (
                self.refusal() or self._sender.sold_out(record) or _drained(context.fleet.groups.get(record.group))
            )
        return Situation(
            now=now,
            settings=context.settings,
            may_create=self.observer.may_create,
            sees_cloud=self.observer.health.failures == 0,
            sees_nodes=context.nodes.is_clear,
            is_used=back is not None and context.nodes.is_used(back),
            is_paused=context.fleet.pause_of(record.group, record.cloud) is not None,
            is_served=record.group in context.fleet.groups,
            refusal=refusal,
        )

    def _set_alarm(self, name: str, at: float | None) -> None:
        if at is None:
            self._alarm_of.pop(name, None)
        elif self._alarm_of.get(name) != at:
            self._alarm_of[name] = at
            heapq.heappush(self._alarms, (at, name))

    def _sound_alarms(self, now: float) -> None:
        while self._alarms and self._alarms[0][0] <= now:
            at, name = heapq.heappop(self._alarms)
            if self._alarm_of.get(name) == at:
                del self._alarm_of[name]
                self._due[name] = None

    # -- writing -----------------------------------------------------------------------------------------------------

    async def _write(self, moves: Iterable[Move]) -> None:
        await self._context.writer.write(lambda: self._planned(moves))

    def _planned(self, moves: Iterable[Move]) -> Change:
        """The moves whose records have not changed since the decision; the others are decided about again."""
        now = self._context.clock.now()
        records: list[MachineRecord] = []
        moved: list[MachineRecord] = []  # those that get an event
        events: list[Event] = []
        for made in moves:
            current = self._context.fleet.machines.get(made.record.name)
            is_same = current is not None and current.version + 1 == made.record.version
            if not is_same or self._has_joined_after_all(made.record):
                self._make_due(made.record.name)
                continue
            records.append(made.record)
            if made.kind is not None:
                moved.append(made.record)
                events.append(about(made.record, now, made.cause, kind=made.kind))
        events += self.observer.absence.losses(moved, now)
        more = self.repairer.keep_minimum([r for r in records if r.state is State.GONE], now)
        return Change(machines=[*records, *more.machines], events=[*events, *more.events])

    def _has_joined_after_all(self, late: MachineRecord) -> bool:
        """Whether the node came at the moment in which its machine was given up for not joining."""
        if late.state is not State.FAILED or late.error is None or late.error.code != JOIN_DEADLINE:
            return False
        node = self.observer.see(late).node
        return node.joined is not False or bool(node.rivals.any)


def _unproven(record: MachineRecord, machine: Machine, now: float) -> Event:
    id_, what = machine.machine_id, "does not show our marks"
    if record.is_adopted:
        what += ", nor prove to be the one that was adopted"
    if record.state is State.GONE:
        way = f"if it is yours, adopt it again with `cloudgraft adopt {record.group} {id_}`"
    else:
        way = (
            f"give it its marks back, say that it is ours with `cloudgraft orphans adopt {id_}`, or take it out of the "
            f"journal with `cloudgraft orphans release {record.name}`"
        )
    message = f"machine {id_} {what}, so it is not deleted; {way}"
    return about(record, now, message, kind="unproven", machine_id=machine.machine_id)


def _drained(group: Group | None) -> ErrorRecord | None:
    """The error of a machine requested before its group was removed from the configuration: it is not created."""
    if group is None or group.is_configured:
        return None
    return failure("draining", "its group is no longer configured")


def _withheld(record: MachineRecord, decision: Decision) -> str:
    """Describes what `observeOnly` forbids of a decision; empty for a decision that only records observations."""
    match decision:
        case Create():
            return "create it"
        case Delete(machine, cause):
            why = cause or (record.error.message if record.error else "its deletion was ordered")
            return f"delete machine {machine.machine_id}: {why}"
        case Move(new) if _gives_up(record, new):
            return f"give it up and delete it: {new.error.message if new.error else decision.cause}"
        case _:
            return ""


def _gives_up(old: MachineRecord, new: MachineRecord) -> bool:
    """Whether the new record leads to the deletion of the machine."""
    return new.presence is Presence.PRESENT and new.state in (State.FAILED, State.DELETING) and old.state != new.state
