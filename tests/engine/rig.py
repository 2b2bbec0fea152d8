"""An engine on a clock that only moves when it is told to, with a real journal and a simulated cloud behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from cloudgraft.engine.blueprint import Blueprint, CloudDeclaration, GroupDeclaration
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.engine.specs import CloudSettings, EngineSettings
from cloudgraft.sdk.driver import Driver, DriverTraits, Ownership
from cloudgraft.sdk.types import Instance, InstanceState, NodeRef
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import MachineRecord, State
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

    def __post_init__(self) -> None:
        self.cloud = SimulatedCloud(self.options, clock=self.clock)
        self.engine = self.make()
        self.provider = EngineProvider(self.engine)

    def blueprint(self) -> Blueprint:
        clouds = {"sim": CloudDeclaration(settings=self.cloud_settings, make=lambda: SimulatedDriver.of(self.cloud))}
        for name, driver in self.drivers.items():
            settings = replace(self.cloud_settings, name=name)
            clouds[name] = CloudDeclaration(settings=settings, make=lambda driver=driver: driver)  # type: ignore[misc]  # mypy knows no default of a lambda
        return Blueprint(cluster="test", clouds=clouds, groups=self.groups, settings=self.settings)

    def make(self) -> Engine:
        journal = SqlJournal.sqlite(self.directory / "journal.db")
        return Engine(self.blueprint(), journal, clock=self.clock, is_stepped=True)

    async def start(self) -> EngineProvider:
        await self.provider.start()
        return self.provider

    async def restart(self) -> EngineProvider:
        await self.engine.close()
        self.engine = self.make()
        self.provider = EngineProvider(self.engine)
        return await self.start()

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

    def alive(self) -> list[str]:
        """The names of the machines that the cloud has and that are not going."""
        return sorted(m.name for m in self.cloud.machines() if m.state.value not in ("deleting", "gone"))


def fake(instance: Instance, reason: str = "unregistered") -> NodeRef:
    """The node that the autoscaler makes up for an instance (R16)."""
    annotations = {"k8s.io/cluster-autoscaler/fake-node-reason": reason}
    return NodeRef(name=instance.id, provider_id=instance.id, annotations=annotations)


def creating(instances: Sequence[Instance]) -> list[Instance]:
    return [i for i in instances if i.state is InstanceState.CREATING]


__all__ = ["DriverTraits", "HandClock", "Ownership", "Rig", "creating", "fake", "group"]
