"""A rig whose process can die at any journal write and before or after any call to the cloud."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.store.journal import EventQuery, Journal
from cloudgraft.store.records import Change, Contents, Event
from cloudgraft.store.sql import SqlJournal
from tests.engine.engine_rig import Rig

T = TypeVar("T")


class Killed(BaseException):
    """The process is no more. Nothing catches it, as nothing catches kill -9."""


@dataclass
class Life:
    """Counts what a process does to the world, and ends it at a chosen moment."""

    left: int | None = None  # steps until it dies; None: it lives
    is_after: bool = False  # whether that last step is still made
    is_over: bool = False

    def doom(self, steps: int, *, is_after: bool) -> None:
        self.left, self.is_after = steps, is_after

    async def step(self, work: Callable[[], Awaitable[T]]) -> T:
        if self.is_over:
            raise Killed
        if self.left is not None and self.left <= 0:
            self.is_over = True
            if self.is_after:
                await work()
            raise Killed
        if self.left is not None:
            self.left -= 1
        return await work()


class MortalJournal(Journal):
    """Writes for as long as its process lives."""

    def __init__(self, inner: Journal, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def open(self) -> None:
        await self._inner.open()

    async def load(self) -> Contents:
        return await self._inner.load()

    async def write(self, change: Change) -> None:
        await self._life.step(lambda: self._inner.write(change))

    async def events(self, query: EventQuery) -> Sequence[Event]:
        return await self._inner.events(query)

    async def purge(self, *, gone_before: float, events_before: float, limit: int = 1000) -> int:
        return await self._inner.purge(gone_before=gone_before, events_before=events_before, limit=limit)

    async def close(self) -> None:
        await self._inner.close()


class MortalDriver(Driver):
    """Calls its cloud for as long as its process lives, and remembers for which names it was ever asked to create."""

    def __init__(self, inner: Driver, life: Life, sent: set[str]) -> None:
        self._inner = inner
        self._life = life
        self._sent = sent
        self.traits = inner.traits

    async def create(self, spec: MachineSpec) -> Machine:
        self._sent.add(spec.name)
        return await self._life.step(lambda: self._inner.create(spec))

    async def delete(self, machine: Machine) -> None:
        await self._life.step(lambda: self._inner.delete(machine))

    async def list(self) -> Sequence[Machine]:
        return await self._life.step(self._inner.list)

    async def shapes(self) -> Sequence[Shape]:
        return await self._inner.shapes()

    async def prices(self) -> Sequence[Price]:
        return await self._inner.prices()

    async def start(self) -> None:
        await self._inner.start()

    async def close(self) -> None:
        await self._inner.close()


@dataclass
class MortalRig(Rig):
    """Each engine that it makes has a life of its own."""

    sent: set[str] = field(default_factory=set)

    def make(self) -> Engine:
        self.life = Life()
        journal = SqlJournal.sqlite(self.directory / "journal.db", cluster_id=self.cluster_id)
        return Engine(self.desired_state(), MortalJournal(journal, self.life), clock=self.clock, is_stepped=True)

    def driver(self) -> Driver:
        return MortalDriver(SimulatedDriver.of(self.cloud, waits=False), self.life, self.sent)

    async def revive(self) -> EngineProvider:
        """After a death: a new process on the same journal and the same cloud."""
        self.life.is_over = True
        await self.crash()
        return await self.start()
