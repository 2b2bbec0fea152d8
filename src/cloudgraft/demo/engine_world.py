"""Builds the demo's world: the engine with a real journal, a simulated cloud, and a clock that moves on command."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final

from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.cluster import Machine
from cloudgraft.demo.decide import Shape
from cloudgraft.demo.events import Books, CrashState
from cloudgraft.demo.timetable import GPU_POOL, HOUR, MINUTE, date_time, seconds_at
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.identity import TAG_GROUP
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk import AutoscalingOptions, NodeTemplate, Taint
from cloudgraft.sdk.driver import Idempotency, MachineState
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.records import SimMachine
from cloudgraft.store.records import Presence, State
from cloudgraft.store.sql import SqlJournal

_CLOUD: Final = "sim"
_STEP: Final = MINUTE  # between two observations of the engine
_PATIENCE: Final = 10.0  # real seconds; the cloud is in this process, and takes milliseconds
_JOURNAL: Final = "journal.db"
_LEFT_BEHIND: Final = ("", "-wal", ".cluster-id")  # the files of a journal that a killed process leaves

CLOUD: Final = SimulatedOptions(
    # A second order for the same machine would make a second machine: only the engine prevents that.
    idempotency=Idempotency.NONE,
    boot_time=timedelta(minutes=9),
    delete_time=timedelta(minutes=5),
    stock={"small": 4},  # fewer than the group's max: the cloud will run out
    prices={"small": Decimal("0.04"), "large": Decimal("0.20"), "gpu": Decimal("1.80")},
)


def _group(
    shape: str, most: int, taints: Sequence[Taint] = (), options: AutoscalingOptions | None = None
) -> GroupDeclaration:
    """A group of one of the cloud's own shapes. Its template and its machines have the same labels and taints."""
    labels = {"pool": shape}
    on_machines = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]
    return GroupDeclaration(
        id=shape,
        cloud=_CLOUD,
        min_size=0,
        max_size=most,
        machine={"shape": shape, "labels": labels, "taints": on_machines},
        template=TemplateDeclaration(labels=labels, taints=taints),
        options=options,
    )


GROUPS: Final = (
    _group("small", 8),
    _group("large", 4),
    _group(
        "gpu",
        2,
        [Taint(key=key, value=value) for key, value in GPU_POOL.items()],
        options=AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=5)),  # too expensive to idle for long
    ),
)


class EngineWorld:
    """An engine that runs step by step. It can crash, and another one continues from what it left on disk."""

    def __init__(
        self,
        directory: Path,
        *,
        begins: float = seconds_at("06:00"),
        options: SimulatedOptions = CLOUD,
        provider: type[EngineProvider] = EngineProvider,
    ) -> None:
        """``directory`` is for the journal. ``provider`` wraps the engine for the server."""
        self._now = begins
        self._directory = directory
        self._lives = 0
        self._provider_type = provider
        self._cloud = SimulatedCloud(options, clock=self._epoch, ident="vm")
        self._begin(directory / _JOURNAL)

    def _begin(self, journal: Path) -> None:
        """A new engine, which knows what that journal knows."""
        self._journal = journal
        self._accepted = asyncio.Event()  # set when the cloud accepts an order whose answer is lost
        settings, make = (
            CloudSettings(name=_CLOUD),
            partial(SimulatedDriver.of, self._cloud, sleep=self._miss_the_answer),
        )
        clouds = {_CLOUD: CloudDeclaration(settings=settings, make=make)}
        desired_state = DesiredState(cluster="demo", clouds=clouds, groups=GROUPS)
        self._engine = Engine(desired_state, SqlJournal.sqlite(journal), clock=_Clock(self), is_stepped=True)
        self._provider = self._provider_type(self._engine)

    @property
    def provider(self) -> EngineProvider:
        """The provider to serve; after :meth:`die` it is another one."""
        return self._provider

    def now(self) -> float:
        """The demo's time, in seconds since midnight."""
        return self._now

    def _epoch(self) -> float:
        return date_time(self._now).timestamp()

    async def advance(self, seconds: float) -> None:
        """Moves the clock minute by minute; the engine observes and acts at each."""
        until = self._now + seconds
        await self._engine.turn()  # requests since the last observation
        while self._now < until:
            self._now = min(until, self._now + _STEP)
            await self._engine.turn()
        await self._engine.turn()  # a machine counts as gone after two lists

    async def machines(self) -> Sequence[Machine]:
        """The cloud's real machines, not the engine's view: all that have booted and are not gone."""
        names = self._node_names()
        return [
            Machine(name=names[machine.machine_id], provider_id=machine.provider_id, shape=_shape(machine))
            for machine in self._cloud.machines()
            if machine.running_since is not None and machine.state in (MachineState.RUNNING, MachineState.DELETING)
        ]

    def _node_names(self) -> dict[str, str]:
        """Node names by machine id: short, for the screen; the providerID is what counts."""
        names: dict[str, str] = {}
        numbers: Counter[str] = Counter()
        for entry in self._cloud.ledger():
            group = entry.tags[TAG_GROUP]
            numbers[group] += 1
            names[entry.machine_id] = f"{group}-{numbers[group]}"
        return names

    async def die(self) -> CrashState:
        """Makes the engine order what is due, and ends it after the cloud has accepted and before the answer arrives.

        The next engine gets only the journal's files as they are on disk at that moment, as after a kill. It gets
        copies, so that closing the old engine cannot help it.
        """
        before = {machine.machine_id for machine in self._cloud.machines()}
        self._cloud.set_chaos(Chaos(create=Faults(lost=Odds(next=1)), lost_after=HOUR))
        turn = asyncio.create_task(self._engine.turn())
        accepted = asyncio.create_task(self._accepted.wait())
        await asyncio.wait({turn, accepted}, timeout=_PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        self._cloud.set_chaos(Chaos())
        if not accepted.done():
            accepted.cancel()
            raise StoryError("cloudgraft was to die while it orders a machine, but it ordered none")
        left = self._salvage()
        contents = await self._engine.journal.load()
        await self._engine.workers[_CLOUD].caller.stop(0.0)
        await turn
        self._begin(left)
        on_disk = [record for record in contents.machines if record.state is not State.GONE]
        names = self._node_names()
        return CrashState(
            machines=len(on_disk),
            unknown=sum(record.presence is Presence.UNKNOWN for record in on_disk),
            ordered=[
                names[machine.machine_id] for machine in self._cloud.machines() if machine.machine_id not in before
            ],
        )

    async def _miss_the_answer(self, _seconds: float) -> None:
        """Carries out the call, and never returns the answer."""
        self._accepted.set()
        await asyncio.get_running_loop().create_future()

    def _salvage(self) -> Path:
        """A copy of the journal's files as they are now."""
        self._lives += 1
        found = self._directory / f"life-{self._lives}" / _JOURNAL
        found.parent.mkdir()
        for ending in _LEFT_BEHIND:
            old = self._journal.with_name(_JOURNAL + ending)
            if old.exists():
                shutil.copyfile(old, found.with_name(_JOURNAL + ending))
        return found

    def books(self) -> Books:
        """Everything that the cloud ever made, and whether the journal knows the same machines, one per intent."""
        entries, known = self._cloud.ledger(), self._engine.fleet.machines
        present = {entry.name for entry in entries if entry.gone_at is None}
        unknown = sum(entry.name not in known for entry in entries)
        missing = sum(r.presence is Presence.PRESENT and r.name not in present for r in known.values())
        return Books(
            machines=len(entries),
            cost=float(sum(entry.cost for entry in entries)),
            lost=unknown + missing,
            doubled=len(entries) - len({entry.name for entry in entries}),
        )


class _Clock:
    """The world's time, for the engine: seconds since the epoch."""

    def __init__(self, world: EngineWorld) -> None:
        self._world = world

    def now(self) -> float:
        return date_time(self._world.now()).timestamp()


def _shape(machine: SimMachine) -> Shape:
    """The resources that its kubelet would report; all are allocatable, because the demo reserves nothing."""
    capacity = machine.shape.capacity
    taints = machine.settings.taints
    return Shape.of(NodeTemplate(capacity=capacity, allocatable=capacity, labels=machine.labels, taints=taints))
