"""One run: clouds, Kubernetes, a server, autoscalers, a plan, and a judge who watches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, GuardLimits
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import Machine, MachineSpec, Ownership
from cloudgraft.sdk.types import NodeGroup, NodeRef
from cloudgraft.store.records import Change, Contents, Scope
from tests.simulation.autoscaler import Autoscaler
from tests.simulation.cloud import SimCloud, SimDriver, SimMachine
from tests.simulation.determinism import InlinePool
from tests.simulation.invariants import Judge, Violation
from tests.simulation.journals import OPERATOR, Journals
from tests.simulation.kubernetes import SimKubernetes, SimNode
from tests.simulation.loop import Host, VirtualLoop
from tests.simulation.operators import Operators
from tests.simulation.orders import Orders
from tests.simulation.plan import Plan
from tests.simulation.postgres import SimPostgres
from tests.simulation.server import Disk, SimServer
from tests.simulation.setting import Setting
from tests.simulation.trace import Trace

CLUSTER = "sim"


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
        self.operators = Operators(self)
        self.orders = Orders(self)
        self.journals = Journals(self)
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
        self._foreign = 0
        self._running: list[asyncio.Task[None]] = []
        self._refreshed: dict[Host, float] = {}  # when the latest Refresh began that was answered
        self.paused: dict[str, float] = {}  # group -> since when

    def _server(self, name: str, disk: Disk) -> SimServer:
        return SimServer(
            name,
            self.loop,
            disk=disk,
            postgres=self.postgres,
            kubernetes=self.kubernetes,
            desired_state=self.desired_state,
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
        self.journals.begin()
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

    def desired_state(self) -> DesiredState:
        clouds = {
            name: CloudDeclaration(settings=self._settings_of(name), make=partial(SimDriver, cloud, self))
            for name, cloud in self.clouds.items()
        }
        settings = replace(self.setting.engine, guards=self.guards)
        return DesiredState(cluster=CLUSTER, clouds=clouds, groups=self.groups, settings=settings)

    def _settings_of(self, cloud: str) -> CloudSettings:
        return replace(self.setting.cloud_settings(cloud), observe_only=cloud in self.operators.observed)

    def reconfigure(self, groups: Sequence[GroupDeclaration], guards: GuardLimits | None = None) -> None:
        self.groups = groups
        self.judge.restraint.observe(self.operators.observed)
        if guards is not None:
            if replace(guards, max_deletes_per_hour=self.guards.max_deletes_per_hour) != self.guards:
                self.judge.guards_since = self.loop.time() + 300
            self.guards = self.judge.guards = guards
            self.judge.restraint.limit(guards.max_deletes_per_hour)
        for server in self.replicas:
            if server.engine is not None and server.is_up:
                server.engine.reconfigure(self.desired_state())

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
        self.loop.later(self._down or OPERATOR, self._start, server)

    def _tamper(self) -> None:
        pending, self._after_death = self._after_death, []
        for then in pending:
            then()

    def _start(self, server: SimServer) -> None:
        if not server.is_up:
            self._down = 0.0
            server.start()

    def set_clock(self, offset: float) -> None:
        self.server.set_clock(offset)

    def on_refused(self, server: SimServer, error: Exception) -> None:
        """A person looks, and puts the latest backup back, or what was there before."""
        if server not in self.replicas:
            return
        self.trouble("", self.loop.time() + OPERATOR + 120)
        self._down = OPERATOR
        self._after_death.append(self.journals.recover)

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
            if self.operators.pauses.get(name, 0.0) < self.loop.time():
                self.operators.operate(partial(Change, resumed=((Scope.GROUP, name),)))
        self.operators.on_loaded(server.host, contents)
        self.orders.on_loaded(contents, is_destroyed=self.judge.is_destroyed)
        self.judge.on_loaded(server, contents)

    def on_commit(self, server: SimServer, change: Change) -> None:
        self.trace(server.name, f"commit {_brief(change)}")
        for pause in change.pauses:
            self.paused[pause.name] = self.loop.time()
        for _, name in change.resumed:
            self.paused.pop(name, None)
        for event in change.events:
            if event.kind == "double" and "none is deleted" in event.message:
                self.loop.later(OPERATOR, self.operators.settle_double, event.machine)
        self.operators.on_commit(change)
        self.orders.on_commit(change)
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


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(8))


def _brief(change: Change) -> str:
    machines = [f"{r.name}={r.state.value}/{r.presence.value} v{r.version}" for r in change.machines]
    return f"{' '.join(machines)} | {' '.join(f'{e.kind}@{e.at:.3f}' for e in change.events)}"
