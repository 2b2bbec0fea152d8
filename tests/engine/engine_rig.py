"""An engine on a clock that only moves when it is told to, with a real journal and a simulated cloud behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, Ownership
from cloudgraft.sdk.types import Instance, InstanceState, NodeRef
from cloudgraft.simcloud.chaos import Chaos
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import Change, Event, MachineRecord, PauseRecord, Scope, State
from cloudgraft.store.sql import SqlJournal

EPOCH = 1_800_000_000.0


class HandClock:
    """Time in one's hand."""

    def __init__(self, now: float = EPOCH) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


SETTINGS = CloudSettings(name="sim", create_timeout=timedelta(seconds=30))


def group(id_: str = "g", **changes: object) -> GroupDeclaration:
    declared = GroupDeclaration(id=id_, cloud="sim", min_size=0, max_size=10, machine={"shape": "small"})
    return replace(declared, **changes)  # type: ignore[arg-type]  # a test names fields of its own choice


@dataclass
class Rig:
    """One engine, which can be stopped and started again on the same journal and the same cloud."""

    directory: Path
    groups: Sequence[GroupDeclaration] = (group(),)
    options: SimulatedOptions = field(
        default_factory=lambda: SimulatedOptions(boot_time=timedelta(seconds=30), delete_time=timedelta(seconds=5))
    )
    settings: EngineSettings = field(default_factory=EngineSettings)
    cloud_settings: CloudSettings = SETTINGS
    drivers: Mapping[str, Driver] = field(default_factory=dict)  # clouds beside "sim"
    clock: HandClock = field(default_factory=HandClock)
    cluster_id: str | None = None  # as `clusterId:` gives it

    def __post_init__(self) -> None:
        self.cloud = SimulatedCloud(self.options, clock=self.clock)
        self.engine = self.make()
        self.provider = EngineProvider(self.engine)

    def desired_state(self) -> DesiredState:
        clouds = {"sim": CloudDeclaration(settings=self.cloud_settings, make=self.driver)}
        for name, driver in self.drivers.items():
            settings = replace(self.cloud_settings, name=name)
            clouds[name] = CloudDeclaration(settings=settings, make=lambda driver=driver: driver)  # type: ignore[misc]  # mypy knows no default of a lambda
        return DesiredState(cluster="test", clouds=clouds, groups=self.groups, settings=self.settings)

    def driver(self) -> Driver:
        """No time passes in a call but what the clock says."""
        return SimulatedDriver.of(self.cloud, waits=False)

    def make(self) -> Engine:
        journal = SqlJournal.sqlite(self.directory / "journal.db", cluster_id=self.cluster_id)
        return Engine(self.desired_state(), journal, clock=self.clock, is_stepped=True)

    async def start(self) -> EngineProvider:
        await self.provider.start()
        return self.provider

    async def restart(self) -> EngineProvider:
        await self.engine.close()
        self.engine = self.make()
        self.provider = EngineProvider(self.engine)
        return await self.start()

    async def crash(self) -> None:
        """Ends the engine as kill -9 would: nothing is told to the journal or the cloud any more."""
        doomed, self.engine = self.engine, self.make()
        for worker in doomed.workers.values():
            worker.caller._outcomes.clear()
        await doomed.journal.close()  # all that a dead process lets go of
        await doomed.close()
        self.provider = EngineProvider(self.engine)

    async def wipe(self, *, keeps_id: bool = True) -> None:
        """Removes the journal's files between two lives of the engine."""
        await self.engine.close()
        for path in self.directory.glob("journal.db*"):
            if not (keeps_id and path.name.endswith(".cluster-id")):
                path.unlink()
        self.engine = self.make()
        self.provider = EngineProvider(self.engine)

    async def reconfigure(self, *groups: GroupDeclaration, settings: EngineSettings | None = None) -> None:
        """A changed file, and the Refresh that applies it."""
        self.groups = groups or self.groups
        self.settings = settings or self.settings
        self.engine.reconfigure(self.desired_state())
        await self.provider.refresh()

    async def pause(self, scope: Scope, name: str) -> None:
        record = PauseRecord(scope=scope, name=name, since=self.clock.now(), reason="a test")
        await self.engine.writer.write(lambda: Change(pauses=(record,)))

    async def resume(self, scope: Scope, name: str) -> None:
        await self.engine.writer.write(lambda: Change(resumed=((scope, name),)))

    def chaos(self, **chaos: object) -> None:
        """By the keys of JSON, as over HTTP; nothing for nothing."""
        self.cloud.set_chaos(Chaos.from_json(chaos))

    def place(self, name: str, tags: Mapping[str, str]) -> str:
        """Puts a machine of somebody into the cloud; returns its id."""
        order = Order(name=name, settings=MachineSettings(shape="small"), tags=tags, client="somebody")
        return self.cloud.create(order)[0].machine_id

    async def events(self, *kinds: str) -> Sequence[Event]:
        return await self.engine.journal.events(EventQuery(kinds=kinds, limit=10_000))

    async def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        await self.engine.turn()

    async def settle(self, turns: int = 10, seconds: float = 10.0) -> None:
        """Lets some time pass, look by look."""
        for _ in range(turns):
            await self.turn(seconds)

    async def states(self, group_id: str = "g") -> list[str]:
        return [r.state.value for r in self.engine.fleet.groups[group_id].machines.values()]

    def records(self, *states: State) -> list[MachineRecord]:
        return [r for r in self.engine.fleet.machines.values() if not states or r.state in states]

    async def shown(self, group_id: str = "g") -> list[Instance]:
        return list(await self.provider.instances(group_id))

    def machine(self, record: MachineRecord) -> Machine:
        """What the cloud really has of a record."""
        return self.cloud.get(record.machine_id).as_machine()

    def alive(self) -> list[str]:
        """The names of the machines that the cloud has and that are not going."""
        return sorted(m.name for m in self.cloud.machines() if m.state.value not in ("deleting", "gone"))


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    """Started here, closed at the end, whichever engine it has then."""
    await rig.start()
    try:
        yield rig
    finally:
        await rig.engine.close()


def fake(instance: Instance, reason: str = "unregistered") -> NodeRef:
    """The node that the autoscaler makes up for an instance (R16)."""
    annotations = {"k8s.io/cluster-autoscaler/fake-node-reason": reason}
    return NodeRef(name=instance.id, provider_id=instance.id, annotations=annotations)


def creating(instances: Sequence[Instance]) -> list[Instance]:
    return [i for i in instances if i.state is InstanceState.CREATING]


def real(instance: Instance, name: str = "some-node") -> NodeRef:
    """The node that a kubelet registered for an instance."""
    return NodeRef(name=name, provider_id=instance.id)


__all__ = ["DriverTraits", "HandClock", "Ownership", "Rig", "creating", "fake", "group", "real", "running"]
