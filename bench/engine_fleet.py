"""A fleet that has been there for a while: a journal with machines and their history, and the cloud that has them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from bench.cluster import Cluster
from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.desired import Catalog, CloudDeclaration, DesiredState, GroupDeclaration, complete
from cloudgraft.engine.groups.resolution import record_of
from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GroupSpec, GuardLimits, Money
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.engine.machines.states import move
from cloudgraft.engine.new_records import about, found
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec
from cloudgraft.sdk.types import AutoscalingOptions
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.json_forms import order_for
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Change, CloudRecord, Event, MachineRecord, State
from cloudgraft.store.sql import SqlJournal

CLOUD = "sim"
_CLUSTER_ID = "benchbench"
_AGO = 3600.0  # seconds since when all machines have been there
_BATCH = 1000
_MOST = 100_000  # machines per group: no measurement ends there


def group_names(count: int) -> tuple[str, ...]:
    """The ids of the groups."""
    return tuple(f"pool-{number:03}" for number in range(count))


def _declared(groups: int) -> list[GroupDeclaration]:
    """All of the smallest shape, with something of their own to say when they are asked for options."""
    options = AutoscalingOptions(scale_down_unneeded_time=timedelta(hours=24))
    machine = {"shape": "small"}
    return [
        GroupDeclaration(id=name, cloud=CLOUD, min_size=0, max_size=_MOST, machine=machine, options=options)
        for name in group_names(groups)
    ]


def desired_state(groups: int, make: Callable[[], Driver], observe_every: timedelta) -> DesiredState:
    """The configuration of the engine that is measured."""
    clouds = {CLOUD: CloudDeclaration(settings=CloudSettings(name=CLOUD, observe_every=observe_every), make=make)}
    # Guards that are never hit must be counted all the same.
    guards = GuardLimits(max_machines=_MOST, max_spend_per_day=Money(amount=Decimal(10**9), currency="EUR"))
    return DesiredState(
        cluster="bench", clouds=clouds, groups=_declared(groups), settings=EngineSettings(guards=guards)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A fleet on disk."""

    directory: Path
    machines: Sequence[MachineRecord]
    groups: int
    events: int

    @property
    def journal(self) -> Path:
        """The engine's."""
        return self.directory / "journal.db"

    @property
    def ledger(self) -> Path:
        """The cloud's."""
        return self.directory / "cloud.db"

    def copy(self, directory: Path) -> Seed:
        """The same fleet again, for another engine."""
        shutil.copytree(self.directory, directory)
        return replace(self, directory=directory)

    def cluster(self) -> Cluster:
        """The fleet as the autoscaler sees it."""
        plain = Cluster.of_size(len(self.machines))
        nodes = (
            replace(node, name=record.name, provider_id=record.provider_id)
            for node, record in zip(plain.nodes, self.machines, strict=True)
        )
        return Cluster(tuple(nodes), group_names(self.groups))


async def make_seed(directory: Path, *, machines: int, groups: int, events: int, in_cloud: bool) -> Seed:
    """Makes a fleet of running machines in that directory; ``in_cloud`` when there is to be a cloud that has them."""
    cloud = _cloud(directory, in_cloud=in_cloud)
    catalog = Catalog(shapes={shape.name: shape for shape in cloud.shapes()}, prices=cloud.prices())
    specs = [complete(declared, catalog, needs_price=False) for declared in _declared(groups)]
    records = [_running(spec, machine) for spec, machine in _machines(specs, machines, cloud if in_cloud else None)]
    cloud.close()
    seed = Seed(directory=directory, machines=records, groups=groups, events=events)
    await _write(seed, specs)
    return seed


def _cloud(directory: Path, *, in_cloud: bool) -> SimulatedCloud:
    directory.mkdir()
    options = SimulatedOptions(state_file=directory / "cloud.db" if in_cloud else None)
    return SimulatedCloud(options, clock=lambda: time.time() - _AGO)


def _machines(
    specs: Sequence[GroupSpec], count: int, cloud: SimulatedCloud | None
) -> Iterator[tuple[GroupSpec, Machine]]:
    identity = Identity("bench", _CLUSTER_ID)
    for number in range(count):
        spec = specs[number % len(specs)]
        name = identity.new_name(spec.id)
        tags = identity.tags(name, spec.id)
        if cloud is None:
            yield spec, Machine(name=name, machine_id=f"m-{number}", provider_id=f"simulated://m-{number}", tags=tags)
        else:
            order = order_for(MachineSpec(name=name, group=spec.id, settings=spec.machine, tags=tags), "")
            yield spec, cloud.create(order)[0].as_machine()


def _running(spec: GroupSpec, machine: Machine) -> MachineRecord:
    then = time.time() - _AGO
    return move(found(machine, spec, Fleet(), then, is_adopted=False), State.RUNNING, then)


async def _write(seed: Seed, specs: Sequence[GroupSpec]) -> None:
    journal = SqlJournal.sqlite(seed.journal, cluster_id=_CLUSTER_ID)
    await journal.open()
    cloud = CloudRecord(name=CLOUD, adopted_at=time.time() - _AGO)
    await journal.write(Change(groups=[record_of(spec) for spec in specs], clouds=[cloud]))
    new = [replace(record, version=1) for record in seed.machines]
    for start in range(0, len(new), _BATCH):
        await journal.write(Change(machines=new[start : start + _BATCH]))
    history = _history(seed)
    for start in range(0, seed.events, _BATCH * 5):
        await journal.write(Change(events=history[start : start + _BATCH * 5]))
    await journal.close()


def _history(seed: Seed) -> list[Event]:
    """The oldest first, as they happened: each machine's lines lie far apart."""
    then, count = time.time() - _AGO, max(1, len(seed.machines))
    return [
        about(seed.machines[number % count], then + number * 1e-3, "the cloud says that it runs")
        for number in range(seed.events)
    ]
