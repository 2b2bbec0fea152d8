"""A cloud in memory that shows what a test wants it to show, and an engine on it with a clock in one's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.nodes.tracking import Cluster, UserData
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import MachineRecord, State
from cloudgraft.store.sql import SqlJournal
from tests.engine.engine_rig import HandClock

TEMPLATE = TemplateDeclaration(capacity={"cpu": Quantity("4"), "memory": Quantity("8Gi")})


class Cloud(Driver):
    """Keeps machines in memory, and shows what a test wants it to show."""

    def __init__(self, traits: DriverTraits | None = None) -> None:
        self.traits = traits or DriverTraits()
        self.machines: dict[str, Machine] = {}
        self.deleted: list[str] = []
        self.lists = 0
        self.is_blind = False
        self.shown: Callable[[Machine], Machine] = lambda machine: machine

    async def create(self, spec: MachineSpec) -> Machine:
        number = f"id-{len(self.machines) + len(self.deleted)}"
        machine = Machine(name=spec.name, machine_id=number, provider_id=f"cloud://{spec.name}", tags=dict(spec.tags))
        self.machines[number] = machine
        return machine

    async def delete(self, machine: Machine) -> None:
        self.deleted.append(machine.machine_id)
        self.machines.pop(machine.machine_id, None)

    async def list(self) -> Sequence[Machine]:
        self.lists += 1
        return [] if self.is_blind else [self.shown(machine) for machine in self.machines.values()]


def group(id_: str = "g", cloud: str = "a", **changes: Any) -> GroupDeclaration:
    declared = GroupDeclaration(id=id_, cloud=cloud, min_size=0, max_size=10, template=TEMPLATE)
    return replace(declared, **changes)


def desired_state(
    clouds: Mapping[str, Driver], *groups: GroupDeclaration, settings: EngineSettings | None = None
) -> DesiredState:
    declared = {name: declaration(name, driver) for name, driver in clouds.items()}
    return DesiredState(cluster="t", clouds=declared, groups=groups, settings=settings or EngineSettings())


def declaration(name: str, driver: Driver) -> CloudDeclaration:
    settings = CloudSettings(name=name, observe_every=timedelta(seconds=5))
    return CloudDeclaration(settings=settings, make=lambda: driver, fingerprint=id(driver))


@dataclass
class Case:
    """One engine on a clock in one's hand."""

    engine: Engine
    clock: HandClock

    @property
    def provider(self) -> EngineProvider:
        return EngineProvider(self.engine)

    async def turns(self, count: int = 4, seconds: float = 10) -> None:
        for _ in range(count):
            self.clock.advance(seconds)
            await self.engine.turn()

    async def states(self, id_: str = "g") -> list[str]:
        return [instance.state.name for instance in await self.provider.instances(id_)]

    def machines(self, *states: State) -> list[MachineRecord]:
        found = [r for r in self.engine.fleet.machines.values() if not states or r.state in states]
        return sorted(found, key=lambda record: record.name)

    async def grow(self, count: int = 1, id_: str = "g") -> list[str]:
        """More machines that run; returns their names."""
        before = {record.name for record in self.machines()}
        await self.provider.increase_size(id_, count)
        await self.turns(3)
        return [record.name for record in self.machines(State.RUNNING) if record.name not in before]

    async def events(self, *kinds: str) -> list[str]:
        found = await self.engine.journal.events(EventQuery(kinds=kinds, limit=1000))
        return [event.message for event in found]

    def records(self, *states: State) -> int:
        return sum(record.state in states for record in self.engine.fleet.machines.values())


@asynccontextmanager
async def stepped(
    tmp_path: Path,
    plan: DesiredState,
    *,
    cluster: Cluster | None = None,
    user_data: UserData | None = None,
    clock: HandClock | None = None,
) -> AsyncIterator[Case]:
    clock = clock or HandClock()
    journal = SqlJournal.sqlite(tmp_path / "journal.db")
    engine = Engine(plan, journal, clock=clock, is_stepped=True, cluster=cluster, user_data=user_data)
    await engine.start()
    await engine.refresh()
    try:
        yield Case(engine, clock)
    finally:
        await engine.close()


def lose_journal(directory: Path) -> None:
    """Removes it between two lives of an engine; the cluster id beside it is kept."""
    for file in directory.glob("journal.db*"):
        if not file.name.endswith(".cluster-id"):
            file.unlink()


@asynccontextmanager
async def live(
    tmp_path: Path, plan: DesiredState, *, cluster: Cluster | None = None, user_data: UserData | None = None
) -> AsyncIterator[Engine]:
    engine = Engine(plan, SqlJournal.sqlite(tmp_path / "journal.db"), cluster=cluster, user_data=user_data)
    await engine.start()
    await engine.refresh()
    try:
        yield engine
    finally:
        await engine.close()
