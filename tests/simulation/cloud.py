"""A simulated cloud that several clusters share. It knows the truth, and misbehaves as its faults say."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, MachineState, Ownership
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    InternalError,
    NotFoundError,
    OutOfStockError,
    RateLimitedError,
    UnavailableError,
)
from tests.simulation.determinism import EPOCH
from tests.simulation.loop import CURRENT, Host, VirtualLoop

_SNAPSHOTS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTraits:
    """What a cloud is like when nothing goes wrong."""

    name: str
    idempotency: Idempotency = Idempotency.NONE
    ownership: Ownership = Ownership.TAGS
    list_delay: float = 0.0
    reuses_ids: bool = False  # as Proxmox does
    tells_provider_id: bool = False  # before the machine exists
    boots: tuple[float, float] = (20.0, 90.0)
    joins: tuple[float, float] = (10.0, 60.0)

    def driver_traits(self) -> DriverTraits:
        """What its driver declares."""
        return DriverTraits(
            ownership=self.ownership,
            idempotency=self.idempotency,
            list_delay=timedelta(seconds=self.list_delay),
            provider_id=f"{self.name}://{{name}}" if self.tells_provider_id else "",
        )


@dataclass(slots=True, eq=False)
class SimMachine:
    """A machine in truth."""

    serial: int  # never given away again
    machine_id: str
    name: str
    provider_id: str
    tags: dict[str, str]
    owner: str  # "ours", or whose it is
    created_at: float
    runs_at: float
    state: MachineState = MachineState.PENDING
    group: str = ""
    ran_since: float | None = None
    was_shown_running: bool = False  # in a list that was delivered to us
    called_failed_since: float | None = None  # by lists that were delivered to us, and that lie
    dead_since: float | None = None  # stopped or failed
    gone_at: float | None = None
    deleting: bool = False
    marks_lost_at: float | None = None
    intent: str = ""  # the name that it was made with
    joined_at: float | None = None
    is_adopted: bool = False  # by an operator's word, without marks
    is_orphan: bool = False  # the journal that knew it was destroyed
    shown_from: float = 0.0
    joins_after: float = 30.0  # seconds after it runs; infinite: never
    node_names: tuple[str, ...] = ()
    missed: int = 0  # lists, delivered to us, that should have had it
    reason: str = ""

    @property
    def is_ours(self) -> bool:
        return self.owner == "ours"

    @property
    def marks_lost(self) -> bool:
        return self.marks_lost_at is not None

    @property
    def is_alive(self) -> bool:
        return self.gone_at is None

    def shown(self) -> Machine:
        return Machine(
            name=self.name,
            machine_id=self.machine_id,
            provider_id=self.provider_id,
            state=MachineState.DELETING if self.deleting else self.state,
            tags=dict(self.tags),
            created_at=datetime.fromtimestamp(EPOCH + self.created_at, UTC),
            reason=self.reason,
        )


@dataclass(slots=True, eq=False)
class Fault:
    """What goes wrong with a verb until a moment, for a share of the calls."""

    verb: str  # list, create, delete
    mode: str
    until: float
    odds: float = 1.0
    param: float = 0.0


class Witness(Protocol):
    """Who is told of everything that the cloud does."""

    def trace(self, who: str, what: str) -> None: ...

    def on_list_call(self, host: Host) -> None: ...

    def on_create_call(self, host: Host, cloud: SimCloud, spec: MachineSpec) -> None: ...

    def on_created(self, cloud: SimCloud, machine: SimMachine) -> None: ...

    def on_delete_call(self, host: Host, cloud: SimCloud, asked: Machine, machine: SimMachine | None) -> None: ...

    def on_list(self, host: Host, cloud: SimCloud, began: float, shown: Sequence[Machine], *, is_lie: bool) -> None: ...

    def on_machine(self, cloud: SimCloud, machine: SimMachine) -> None: ...


class SimCloud:
    """The machines of one account."""

    def __init__(self, traits: CloudTraits, loop: VirtualLoop, dice: random.Random, witness: Witness) -> None:
        self.traits = traits
        self.name = traits.name
        self.machines: dict[str, SimMachine] = {}  # by id, those that are there
        self.all: list[SimMachine] = []  # ever
        self.faults: list[Fault] = []
        self.join_fault: Callable[[SimMachine], None] = lambda _machine: None
        self.open_creates: set[str] = set()  # names of calls that may still succeed
        self.lied_at = -1e9  # when a list last said something that was not so
        self._loop = loop
        self._dice = dice
        self._witness = witness
        self._serial = itertools.count(1)
        self._freed: list[tuple[float, str]] = []
        self._snapshots: list[tuple[float, list[Machine]]] = []
        self._boot_factor = 1.0

    # -- the truth -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self._loop.time()

    def alive(self, *, ours: bool = True) -> Iterator[SimMachine]:
        return (m for m in self.machines.values() if m.is_ours is ours)

    def fault(self, verb: str) -> Fault | None:
        """What goes wrong with this call, if anything does."""
        now = self.now()
        if self.faults:
            self.faults = [f for f in self.faults if f.until > now]
        for fault in self.faults:
            if fault.verb == verb and (fault.odds >= 1 or self._dice.random() < fault.odds):
                return fault
        return None

    def make(
        self, name: str, tags: Mapping[str, str], owner: str, *, group: str = "", machine_id: str = ""
    ) -> SimMachine:
        """Puts a machine there."""
        now, dice = self.now(), self._dice
        serial = next(self._serial)
        id_ = machine_id or self._new_id(serial)
        boots = dice.uniform(*self.traits.boots) * self._boot_factor
        machine = SimMachine(
            serial=serial,
            machine_id=id_,
            name=name,
            provider_id=f"{self.name}://{name if self.traits.tells_provider_id else id_}",
            tags=dict(tags),
            owner=owner,
            created_at=now,
            runs_at=now + boots,
            group=group,
            shown_from=now + dice.uniform(0, self.traits.list_delay) if self.traits.list_delay else now,
            joins_after=dice.uniform(*self.traits.joins),
            node_names=(name,),
            intent=name,
        )
        self.join_fault(machine)
        self.machines[id_] = machine
        self.all.append(machine)
        self._loop.later(boots, self._run, machine)
        self._witness.on_machine(self, machine)
        return machine

    def _new_id(self, serial: int) -> str:
        if self.traits.reuses_ids and self._freed and self._freed[0][0] < self.now() - 300:
            id_ = self._freed.pop(0)[1]
            if id_ not in self.machines:
                return id_
        return f"{self.name}-{serial}"

    def _run(self, machine: SimMachine) -> None:
        if machine.is_alive and machine.state is MachineState.PENDING and not machine.deleting:
            machine.state = MachineState.RUNNING
            machine.ran_since = self.now()
            self._witness.on_machine(self, machine)

    def note_shown(self, shown: Sequence[Machine]) -> None:
        """A list was delivered."""
        for seen in shown:
            machine = self.machines.get(seen.machine_id)
            if machine is None:
                continue
            machine.was_shown_running |= seen.state is MachineState.RUNNING
            is_slandered = seen.state is MachineState.FAILED and machine.state is not MachineState.FAILED
            since = self.now() if machine.called_failed_since is None else machine.called_failed_since
            machine.called_failed_since = since if is_slandered else None

    def stop(self, machine: SimMachine, state: MachineState = MachineState.STOPPED) -> None:
        """Somebody stops it, or it dies."""
        machine.state, machine.reason = state, "as planned"
        if machine.dead_since is None:  # else it was dead already
            machine.dead_since = self.now()
        self._witness.on_machine(self, machine)

    def start(self, machine: SimMachine) -> None:
        """Somebody starts it again."""
        if machine.is_alive and not machine.deleting:
            machine.state, machine.reason, machine.dead_since = MachineState.RUNNING, "", None
            self._witness.on_machine(self, machine)

    def begin_delete(self, machine: SimMachine, seconds: float = 5.0) -> None:
        """It goes, after some seconds."""
        if not machine.deleting:
            machine.deleting = True
            self._witness.on_machine(self, machine)
            self._loop.later(seconds, self.remove, machine)

    def remove(self, machine: SimMachine) -> None:
        """It is gone."""
        if machine.is_alive:
            machine.gone_at = self.now()
            self.machines.pop(machine.machine_id, None)
            self._freed.append((self.now(), machine.machine_id))
            self._witness.on_machine(self, machine)

    # -- what is shown -------------------------------------------------------------------------------------------------

    def truth(self) -> list[Machine]:
        now = self.now()
        return [m.shown() for m in self.machines.values() if m.shown_from <= now]

    def snapshot(self) -> list[Machine]:
        shown = self.truth()
        now = self.now()
        if not self._snapshots or now - self._snapshots[-1][0] >= 30:
            self._snapshots.append((now, shown))
            del self._snapshots[:-_SNAPSHOTS]
        return shown

    def old(self, age: float) -> list[Machine]:
        """As it was so long ago, as far as that is remembered."""
        then = self.now() - age
        found = [shown for at, shown in self._snapshots if at <= then]
        return found[-1] if found else (self._snapshots[0][1] if self._snapshots else [])

    def latency(self, longest: float = 1.0) -> float:
        return self._dice.uniform(0.02, longest)

    @property
    def dice(self) -> random.Random:
        return self._dice


class SimDriver(Driver):
    """The cloud, as one process calls it."""

    def __init__(self, cloud: SimCloud, witness: Witness) -> None:
        self.traits = cloud.traits.driver_traits()
        self._cloud = cloud
        self._witness = witness

    async def list(self) -> Sequence[Machine]:
        cloud, host, began = self._cloud, _host(), self._cloud.now()
        self._witness.on_list_call(host)
        fault = cloud.fault("list")
        mode = fault.mode if fault else ""
        await asyncio.sleep(cloud.latency())
        if mode == "hang":
            await asyncio.sleep(fault.param if fault else 3600)
        if mode == "fail":
            self._witness.trace(f"{host.name} {cloud.name}", "list fails")
            raise UnavailableError("503 from the simulated cloud")
        truth = cloud.snapshot()
        shown: Any = truth
        if mode == "empty":
            shown = []
        elif mode == "half":
            shown = [m for m in truth if _share(m.machine_id, int(fault.param)) < 0.5] if fault else truth
        elif mode == "some":
            shown = [m for m in truth if _share(m.machine_id, int(fault.param)) > 0.12] if fault else truth
        elif mode == "old":
            shown = cloud.old(fault.param) if fault else truth
        elif mode == "slander":
            shown = [_called_failed(m, int(fault.param)) for m in truth] if fault else truth
        elif mode == "nonsense":
            shown = cloud.dice.choice([None, [None], [*truth, *truth[:1]], "machines"])
        is_lie = shown is not truth and shown != truth
        await asyncio.sleep(cloud.latency(0.5))
        if is_lie:
            cloud.lied_at = cloud.now()
        if isinstance(shown, list) and None not in shown:
            self._witness.trace(f"{host.name} {cloud.name}", f"list {mode} {len(shown)}")
            self._witness.on_list(host, cloud, began, shown, is_lie=is_lie)
            cloud.note_shown(shown)
        return shown  # type: ignore[no-any-return]  # on purpose

    async def create(self, spec: MachineSpec) -> Machine:
        cloud, host = self._cloud, _host()
        self._witness.trace(f"{host.name} {cloud.name}", f"create {spec.name}")
        self._witness.on_create_call(host, cloud, spec)
        fault = cloud.fault("create")
        mode = fault.mode if fault else ""
        await asyncio.sleep(cloud.latency())
        if mode in ("before", "stock", "rate"):
            raise {"before": UnavailableError, "stock": OutOfStockError, "rate": RateLimitedError}[mode]("as planned")
        if mode == "late":  # the request is on its way for long, and nobody's death calls it back
            cloud.open_creates.add(spec.name)
            cloud._loop.later(fault.param if fault else 60, self._perform, spec)
            await asyncio.sleep(3600)
        made = self._perform(spec)
        if mode == "twice" and cloud.traits.idempotency is Idempotency.NONE:
            self._perform(spec)
        await asyncio.sleep(cloud.latency())
        if mode == "after":
            raise DeadlineError("it was done, and the answer is lost")
        if mode == "nonsense":
            return self._nonsense(made)  # type: ignore[no-any-return]  # on purpose
        if isinstance(made, CloudgraftError):
            raise made
        return made.shown()

    def _perform(self, spec: MachineSpec) -> SimMachine | CloudgraftError:
        cloud = self._cloud
        cloud.open_creates.discard(spec.name)
        known = next((m for m in cloud.alive() if m.intent == spec.name), None)
        stranger = next((m for m in cloud.machines.values() if m.name == spec.name and not m.is_ours), None)
        if known is not None and cloud.traits.idempotency is Idempotency.TOKEN and not known.deleting:
            return known
        if (known or stranger) and cloud.traits.idempotency is Idempotency.UNIQUE_NAME:
            return AlreadyExistsError(f"there is a machine {spec.name}")
        tags = spec.tags if cloud.traits.ownership is not Ownership.NAME else {}
        machine = cloud.make(spec.name, tags, "ours", group=spec.group)
        self._witness.trace(cloud.name, f"made {machine.name} {machine.machine_id}")
        self._witness.on_created(cloud, machine)
        return machine

    def _nonsense(self, made: SimMachine | CloudgraftError) -> Any:
        other = next((m for m in self._cloud.machines.values() if m is not made), None)
        if self._cloud.dice.random() < 0.5 or other is None:
            return None
        return other.shown()

    async def delete(self, machine: Machine) -> None:
        cloud, host = self._cloud, _host()
        found = cloud.machines.get(machine.machine_id)
        self._witness.trace(f"{host.name} {cloud.name}", f"delete {machine.machine_id} {machine.name}")
        self._witness.on_delete_call(host, cloud, machine, found)
        fault = cloud.fault("delete")
        mode = fault.mode if fault else ""
        await asyncio.sleep(cloud.latency())
        if mode == "before":
            raise UnavailableError("as planned")
        if mode == "late":
            if found is not None:
                cloud._loop.later(fault.param if fault else 60, cloud.begin_delete, found)
            await asyncio.sleep(3600)
        found = cloud.machines.get(machine.machine_id)
        if found is None:
            raise NotFoundError(f"there is no machine {machine.machine_id}")
        if mode != "ignored":
            cloud.begin_delete(found, cloud.latency(10))
        if mode == "after":
            raise InternalError("it was done, and the answer is lost")


def _host() -> Host:
    host = CURRENT.get()
    assert host is not None
    return host


def _called_failed(machine: Machine, salt: int) -> Machine:
    """What the cloud's own health check says of one in four, whatever becomes of it."""
    return replace(machine, state=MachineState.FAILED) if _share(machine.machine_id, salt) < 0.25 else machine


def _share(text: str, salt: int) -> float:
    """From 0 to 1, the same for the same text."""
    return random.Random(f"{text} {salt}").random()
