"""One run: clouds, Kubernetes, a server, autoscalers, a plan, and a judge who watches."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from cloudgraft.engine.adoption import adopt
from cloudgraft.engine.blueprint import Blueprint, CloudDeclaration, GroupDeclaration
from cloudgraft.engine.identity import Identity
from cloudgraft.engine.specs import CloudSettings, GuardLimits
from cloudgraft.sdk.driver import Machine, MachineSpec, Ownership
from cloudgraft.sdk.types import NodeGroup, NodeRef
from cloudgraft.store.records import Change, Contents, Scope
from tests.needs import shared_memory
from tests.simulation import foreign
from tests.simulation.autoscaler import Autoscaler
from tests.simulation.cloud import SimCloud, SimDriver, SimMachine
from tests.simulation.determinism import InlinePool, controlled
from tests.simulation.invariants import Judge, Violation
from tests.simulation.kubernetes import SimKubernetes, SimNode
from tests.simulation.loop import Host, StandstillError, VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.postgres import SimPostgres, shared
from tests.simulation.server import Disk, SimServer
from tests.simulation.setting import Setting
from tests.simulation.trace import Trace

__all__ = ["Result", "World", "run"]

CLUSTER = "sim"
_BACKUP_EVERY = 3000.0
_OPERATOR = 300.0  # seconds until a person looks at a server that does not start


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    digest: str
    steps: int
    lines: int
    violation: Violation | None
    latest: Sequence[str] = ()


class World:
    """Everything of one run."""

    def __init__(
        self,
        setting: Setting,
        plan: Plan,
        hours: float,
        directory: Path,
        loop: VirtualLoop,
        *,
        replicas: int = 1,
        ignored: frozenset[str] = frozenset(),
        echo: Callable[[str], None] | None = None,
    ) -> None:
        """``replicas``: more than one share a PostgreSQL; one alone has a SQLite journal."""
        self.setting = setting
        self.plan = plan
        self.hours = hours
        self.loop = loop
        self.trace = Trace(loop.time, echo=echo)
        self.groups: Sequence[GroupDeclaration] = setting.groups
        self.guards = setting.guards
        self.kubernetes = SimKubernetes(loop, self.trace)
        self.clouds = {
            traits.name: SimCloud(traits, loop, random.Random(f"{traits.name} {setting.seed}"), self)
            for traits in setting.clouds
        }
        self.judge = Judge(self, setting.engine, ignored=ignored)
        self.judge.guards = self.guards
        self.judge.restraint.limit(self.guards.max_deletes_per_hour)
        self.postgres = SimPostgres(loop, directory) if replicas > 1 else None
        names = [f"server-{number}" for number in range(replicas)] if replicas > 1 else ["server"]
        self.replicas = [self._server(name, Disk(directory / "journal.db")) for name in names]
        self._others: list[SimServer] = []
        self.autoscalers = [self._autoscaler(name) for name in ("autoscaler", "autoscaler-2")]
        self.autoscalers[1].is_active = False
        self.failure: Violation | None = None
        self.cluster_id = ""
        self._over: asyncio.Future[None] = loop.create_future()
        self._trouble: dict[str, float] = {}
        self._after_death: list[Callable[[], None]] = []
        self._down = 0.0
        self._aside: Path | None = None
        self._foreign = 0
        self._running: list[asyncio.Task[None]] = []
        self._refreshed: dict[Host, float] = {}  # when the latest Refresh began that was answered
        self.observed: dict[str, float] = {}  # cloud -> until when an operator wants it to be only observed
        self.damaged: set[str] = set()  # names that a flipped bit has made
        self.pauses: dict[str, float] = {}  # group -> until when an operator wants it paused
        self.paused: dict[str, float] = {}  # group -> since when

    def _server(self, name: str, disk: Disk) -> SimServer:
        return SimServer(
            name,
            self.loop,
            disk=disk,
            postgres=self.postgres,
            kubernetes=self.kubernetes,
            blueprint=self.blueprint,
            witness=self,
            dice=random.Random(f"{name} {self.setting.seed}").random,
        )

    @property
    def server(self) -> SimServer:
        """The one that answers; else one that may come to."""
        if len(self.replicas) == 1:
            return self.replicas[0]
        serving = next((server for server in self.replicas if server.is_serving), None)
        return serving or next((server for server in self.replicas if server.is_up), self.replicas[0])

    def discard(self) -> None:
        """Ends every process with the run."""
        for server in (*self.replicas, *self._others):
            server.discard()

    def _autoscaler(self, name: str) -> Autoscaler:
        return Autoscaler(
            name,
            self.loop,
            self._call,
            self.kubernetes,
            demand=self.demand,
            dice=random.Random(f"{name} {self.setting.seed}"),
            witness=self,
            period=self.setting.period,
        )

    async def _call(self, rpc: str, request: Message) -> Any:
        server, began = self.server, self.loop.time()
        host = server.host
        answer = await server.call(rpc, request)
        if rpc == "Refresh" and host is not None:
            self._refreshed[host] = began
        return answer

    def has_heard(self, host: Host, since: float) -> bool:
        """Whether what was configured then is what a process goes by: it began later, or was refreshed since."""
        return max(host.born, self._refreshed.get(host, -1.0)) > since

    # -- the run -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """All of it, to the end or to the first violation."""
        InlinePool.stalled_until = 0.0
        dice = random.Random(f"disk {self.setting.seed}")
        InlinePool.latency = staticmethod(lambda: dice.uniform(0.0005, 0.004))
        for cloud in self.clouds.values():
            for _ in range(2):
                self.make_foreign(cloud.name, "neighbour")
        for number, server in enumerate(self.replicas):
            self.loop.later(3.0 * number, server.start)
        for autoscaler in self.autoscalers:
            self._running.append(self.loop.spawn(autoscaler.run(), autoscaler.name))
        for step in self.plan:
            self.loop.later(step.at, self._apply, step)
        self.loop.later(_BACKUP_EVERY, self._back_up)
        self.loop.later(self.hours * 3600, self._end)
        await self._over

    def _apply(self, step: object) -> None:
        self.trace("plan", f"{step}")
        step.apply(self)  # type: ignore[attr-defined]

    def _end(self) -> None:
        self.judge.check_convergence()
        if self.loop.errors:
            self.judge.fail("error", self.loop.errors[0])
        if not self._over.done():
            self._over.set_result(None)

    def fail(self, violation: Violation) -> None:
        if self.failure is None:
            self.failure = violation
            self.trace("judge", f"VIOLATION {violation}")
        if not self._over.done():
            self._over.set_result(None)

    def demand(self, group: str, now: float) -> int:
        """Constant in the last hours, so that things can settle."""
        hour = int(min(now / 3600, self.hours - 2.5))
        return self.setting.wanted(group, hour)

    # -- what is configured --------------------------------------------------------------------------------------------

    def blueprint(self) -> Blueprint:
        clouds = {
            name: CloudDeclaration(settings=self._settings_of(name), make=partial(SimDriver, cloud, self))
            for name, cloud in self.clouds.items()
        }
        settings = replace(self.setting.engine, guards=self.guards)
        return Blueprint(cluster=CLUSTER, clouds=clouds, groups=self.groups, settings=settings)

    def _settings_of(self, cloud: str) -> CloudSettings:
        return replace(self.setting.cloud_settings(cloud), observe_only=cloud in self.observed)

    def observe(self, clouds: Iterable[str], until: float) -> None:
        """The configuration says that nothing is changed in some clouds, and after a while that it may be again."""
        for cloud in clouds:
            self.observed[cloud] = max(until, self.observed.get(cloud, 0.0))
            self.trouble(cloud, until + 120)
        self.loop.later(until - self.loop.time(), self._end_observing)
        self.reconfigure(self.groups)

    def _end_observing(self) -> None:
        now = self.loop.time()
        self.observed = {cloud: until for cloud, until in self.observed.items() if until > now}
        self.reconfigure(self.groups)

    def reconfigure(self, groups: Sequence[GroupDeclaration], guards: GuardLimits | None = None) -> None:
        self.groups = groups
        self.judge.restraint.observe(self.observed)
        if guards is not None:
            if replace(guards, max_deletes_per_hour=self.guards.max_deletes_per_hour) != self.guards:
                self.judge.guards_since = self.loop.time() + 300
            self.guards = self.judge.guards = guards
            self.judge.restraint.limit(guards.max_deletes_per_hour)
        for server in self.replicas:
            if server.engine is not None and server.is_up:
                server.engine.reconfigure(self.blueprint())

    def operate(self, plan: Callable[[], Change]) -> None:
        """An operator changes something in a server that runs, as soon as one does."""
        server = self.server
        if server.is_serving and server.engine is not None and server.host is not None:
            engine = server.engine

            async def change() -> None:
                await engine.writer.write(plan)

            server.host.spawn(change(), "operator").add_done_callback(lambda task: self._operated(task, plan))
        else:
            self.loop.later(60, self.operate, plan)

    def _operated(self, task: asyncio.Task[None], plan: Callable[[], Change]) -> None:
        if task.cancelled() or task.exception() is not None:
            self.loop.later(60, self.operate, plan)

    def adopt(self, cloud: SimCloud, machine: SimMachine, group: str) -> None:
        """An operator says that a machine is ours, as soon as a server runs that can be told."""
        server = self.server
        if not server.is_serving or server.engine is None or server.host is None:
            self.loop.later(60, self.adopt, cloud, machine, group)
            return
        engine = server.engine

        async def work() -> None:
            result = await adopt(engine, group, [machine.machine_id], is_dry_run=False)
            if not result.items[0].refused:
                machine.owner, machine.group, machine.is_adopted = "ours", group, True
                machine.marks_lost_at = self.loop.time()
                record = engine.fleet.by_machine_id(cloud.name, machine.machine_id)
                if record is not None:  # perhaps that of an earlier machine of the same id: it goes on under that name
                    machine.intent = record.name
                self.on_machine(cloud, machine)

        if machine.is_alive:
            server.host.spawn(work(), "adopt").add_done_callback(_ignored)

    def _settle_double(self, intent: str) -> None:
        """A person reads that it is not clear which of two machines is in use, and deletes the one that is not."""
        for cloud in self.clouds.values():
            twins = [m for m in cloud.machines.values() if m.intent == intent and m.owner in ("ours", "clone")]
            idle = [m for m in twins if not self.kubernetes.nodes_of(m)]
            for machine in idle if len(idle) < len(twins) else idle[1:]:
                self.trace("operator", f"deletes {machine.machine_id}, which is not in use")
                cloud.remove(machine)

    def stop_second(self) -> None:
        self.autoscalers[1].is_active = False

    def make_foreign(self, cloud: str, cluster: str = CLUSTER) -> SimMachine:
        """A machine of another cluster, perhaps of one that has the same name."""
        self._foreign += 1
        identity = Identity(cluster, "zzzzzzzzzz")
        name = f"{identity.prefix}a-ca978112-{_letters(self._foreign)}"
        tags = {} if self.clouds[cloud].traits.ownership is Ownership.NAME else identity.tags(name, "a")
        return self.clouds[cloud].make(name, tags, "another cluster")

    # -- trouble -------------------------------------------------------------------------------------------------------

    def trouble(self, cloud: str, until: float) -> None:
        """Until then, nothing is expected of a cloud; an empty name stands for all."""
        self._trouble[cloud] = max(self._trouble.get(cloud, 0.0), until)

    def clock_trouble(self, until: float) -> None:
        self.judge.doubtful_until = max(self.judge.doubtful_until, until + 7200)

    def is_calm(self, cloud: str) -> bool:
        """Whether nothing keeps the engine from doing what it should in a cloud."""
        now = self.loop.time()
        away = self.kubernetes.away_until
        return now > max(self._trouble.get("", 0.0), self._trouble.get(cloud, 0.0), away) and self.server.is_serving

    def is_limited(self) -> bool:
        """Whether guards may keep the autoscaler from what it wants; that on deletions does not."""
        return replace(self.guards, max_deletes_per_hour=None) != GuardLimits()

    def is_second(self, host: Host) -> bool:
        """Whether a process acts beside the one that has the journal."""
        others = [server for server in self.replicas if server.host is not host]
        return any(server.is_leader if self.postgres is not None else server.is_serving for server in others)

    def open_creates(self, cloud: str) -> set[str]:
        return self.clouds[cloud].open_creates

    # -- the server's misfortunes --------------------------------------------------------------------------------------

    def crash(self, steps: int, down: float, then: Callable[[], None] | None = None) -> None:
        """Kills the server; ``then`` happens while it is down."""
        if then is not None:
            self._after_death.append(then)
        self._down = down
        self.trouble("", self.loop.time() + down + 120)
        if self.server.is_up:
            host = self.server.host
            if host is not None and host.is_frozen:
                host.kill()
            self.server.crash(steps)
        elif then is not None:
            self._tamper()

    def start_second(self, seconds: float) -> None:
        """Somebody removes the lock file and starts another server on the same journal."""
        disk = self.server.disk
        disk.path.with_name(disk.path.name + ".lock").unlink(missing_ok=True)
        second = self._server("second", disk)
        self._others.append(second)
        second.start()
        self.loop.later(seconds, second.crash)

    def on_death(self, server: SimServer) -> None:
        if server not in self.replicas:
            return
        self._tamper()
        self.loop.later(self._down or _OPERATOR, self._start, server)

    def _tamper(self) -> None:
        pending, self._after_death = self._after_death, []
        for then in pending:
            then()

    def _start(self, server: SimServer) -> None:
        if not server.is_up:
            self._down = 0.0
            server.start()

    def lose_journal(self, *, with_id: bool) -> None:
        self.judge.on_destroyed()
        self.server.disk.lose(with_id=with_id)
        if with_id:
            self.loop.later(_OPERATOR, self._give_id)

    def _give_id(self) -> None:
        """A person reads the message that says so, and sets `clusterId`."""
        self.server.cluster_id = self.cluster_id
        self.crash(0, 10)

    def restore_journal(self, age: float) -> None:
        then = self.loop.time() - age
        found = [path for at, path in self.server.disk.backups if at <= then]
        if found:
            self.judge.on_destroyed()
            self.server.disk.restore(found[-1])

    def exchange_journal(self) -> None:
        disk = self.server.disk
        if self._aside is None and disk.path.exists():
            self._aside = disk.path.with_name("aside.db")
            shutil.copyfile(disk.path, self._aside)
            self.judge.on_destroyed()
            disk.lose(with_id=False)
            foreign.write_journal(disk.path, self)

    def put_journal_back(self) -> None:
        if self._aside is not None:
            self.crash(0, 10, self._put_back)

    def _put_back(self) -> None:
        if self._aside is not None:
            self.judge.on_destroyed()
            self.server.disk.restore(self._aside)
            self._aside = None

    def flip_bit(self, bit: int) -> None:
        path = self.server.disk.path
        if path.exists() and path.stat().st_size:
            data = bytearray(path.read_bytes())
            where = bit % (len(data) * 8)
            data[where // 8] ^= 1 << (where % 8)
            path.write_bytes(data)
            self.judge.on_destroyed()

    def flip_record(self, pick: int) -> None:
        """One bit of a machine's name is another one: a record that nobody has written."""
        with (
            contextlib.closing(sqlite3.connect(self.server.disk.path)) as connection,
            contextlib.suppress(sqlite3.Error),
        ):
            names = [row[0] for row in connection.execute("SELECT name FROM machines ORDER BY name")]
            if names:
                name = names[pick % len(names)]
                flipped = name[:-1] + chr(ord(name[-1]) ^ 2)
                connection.execute("UPDATE machines SET name = ? WHERE name = ?", (flipped, name))
                connection.commit()
                self.damaged.add(flipped)
                self.judge.on_destroyed()

    def tear(self, count: int) -> None:
        path = self.server.disk.path
        if path.exists():
            data = path.read_bytes()
            path.write_bytes(data[: max(0, len(data) - count)])
            self.judge.on_destroyed()

    def set_clock(self, offset: float) -> None:
        self.server.set_clock(offset)

    def _back_up(self) -> None:
        self.loop.later(_BACKUP_EVERY, self._back_up)
        if self.postgres is None and self.server.is_serving and self._aside is None:
            self.server.disk.back_up(self.loop.time())

    def on_refused(self, server: SimServer, error: Exception) -> None:
        """A person looks, and puts the latest backup back, or what was there before."""
        if server not in self.replicas:
            return
        self.trouble("", self.loop.time() + _OPERATOR + 120)
        self._down = _OPERATOR
        self._after_death.append(self._recover)

    def _recover(self) -> None:
        if self._aside is not None:
            self._put_back()
        elif self.postgres is not None:
            return
        elif self.server.disk.backups:
            self.restore_journal(0.0)
        else:
            self.lose_journal(with_id=False)

    # -- what everybody tells ------------------------------------------------------------------------------------------

    def on_start(self, server: SimServer) -> None:
        pass

    def on_loaded(self, server: SimServer, contents: Contents) -> None:
        if server not in self.replicas:
            return
        if not self.cluster_id:
            self.cluster_id = contents.cluster_id
        self.paused = {pause.name: self.loop.time() for pause in contents.pauses}
        for name in self.paused:  # an old journal may bring back what an operator had ended
            if self.pauses.get(name, 0.0) < self.loop.time():
                self.operate(partial(Change, resumed=((Scope.GROUP, name),)))
        self.judge.on_loaded(server, contents)

    def on_commit(self, server: SimServer, change: Change) -> None:
        self.trace(server.name, f"commit {_brief(change)}")
        for pause in change.pauses:
            self.paused[pause.name] = self.loop.time()
        for _, name in change.resumed:
            self.paused.pop(name, None)
        for event in change.events:
            if event.kind == "double" and "none is deleted" in event.message:
                self.loop.later(_OPERATOR, self._settle_double, event.machine)
        self.judge.on_commit(server, change)

    def on_list_call(self, host: Host) -> None:
        self.judge.on_list_call(host)

    def on_create_call(self, host: Host, cloud: SimCloud, spec: MachineSpec) -> None:
        self.judge.on_create_call(host, cloud, spec)

    def on_created(self, cloud: SimCloud, machine: SimMachine) -> None:
        self.judge.on_created(cloud, machine)

    def on_delete_call(self, host: Host, cloud: SimCloud, asked: Machine, machine: SimMachine | None) -> None:
        self.judge.on_delete_call(host, cloud, asked, machine)

    def on_list(self, host: Host, cloud: SimCloud, began: float, shown: Sequence[Machine], *, is_lie: bool) -> None:
        self.judge.on_list(host, cloud, began, shown, is_lie=is_lie)

    def on_machine(self, cloud: SimCloud, machine: SimMachine) -> None:
        self.kubernetes.on_machine(cloud, machine)

    def on_deletion_asked(self, group: str, nodes: list[NodeRef]) -> None:
        self.trace("autoscaler", f"deletes {[n.provider_id for n in nodes]}")
        self.judge.on_deletion_asked(group, nodes)

    def on_deletion_refused(self, nodes: list[NodeRef], *, since: float) -> None:
        self.judge.on_deletion_refused(nodes, since=since)

    def on_increase(self, group: str, delta: int, *, before: int) -> None:
        self.judge.on_increase(group)

    def on_answered(self, who: str, rpc: str, group: str, request: Message) -> None:
        if rpc == "NodeGroupIncreaseSize":
            self.judge.on_increased(group, request.delta)  # type: ignore[attr-defined]
        elif rpc == "NodeGroupDeleteNodes":
            self.judge.on_deleted([node.providerID for node in request.nodes])  # type: ignore[attr-defined]

    def on_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        self.judge.on_groups(groups)

    def on_owner(self, node: SimNode, group: str) -> None:
        self.judge.on_owner(node, group)

    def full_check(self) -> None:
        self.judge.full_check()


def _ignored(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(8))


def _brief(change: Change) -> str:
    machines = [f"{r.name}={r.state.value}/{r.presence.value} v{r.version}" for r in change.machines]
    return f"{' '.join(machines)} | {' '.join(f'{e.kind}@{e.at:.3f}' for e in change.events)}"


def run(
    setting: Setting,
    plan: Plan,
    hours: float,
    *,
    replicas: int = 1,
    ignored: frozenset[str] = frozenset(),
    echo: Callable[[str], None] | None = None,
) -> Result:
    """One run, from beginning to end."""
    loop = VirtualLoop()
    with (
        _quiet(),
        tempfile.TemporaryDirectory(dir=shared_memory()) as directory,
        controlled(loop, setting.seed),
        shared() if replicas > 1 else contextlib.nullcontext(),
    ):
        world = World(setting, plan, hours, Path(directory), loop, replicas=replicas, ignored=ignored, echo=echo)
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(loop.spawn(world.run(), "world"))
        except StandstillError as error:
            world.fail(Violation("error", str(error)))
        finally:
            world.discard()
            asyncio.set_event_loop(None)
            loop.close()
        loop.abandon()
        result = Result(world.trace.digest, loop.steps, world.trace.count, world.failure, list(world.trace.latest))
        del world, loop
        gc.collect()
    return result


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Processes that were killed leave tasks behind; what those say when they are collected is of no interest."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook
