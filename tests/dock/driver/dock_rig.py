"""The engine's rig with a dock between engine and cloud: the real hub, a real port, and a driver that dials in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from cloudgraft.dock.protocol.codes import Code, Verb
from cloudgraft.dock.runner import DockRunner, MachineError, Speech
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.simcloud.driver import SimulatedDriver
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver
from tests.engine.engine_rig import Rig, running

T = TypeVar("T")


class Line:
    """The line between the hub and its one driver, which is in this process and dials in over a real socket.

    ``is_here`` says whether the driver is connected, from the next turn on. ``codes`` are answered instead of asking
    the cloud. ``cut`` ends the connection in the middle of the next operation of a verb: "before" the driver did it, or
    "after". What it knew of operations is lost with it, as when its process is killed.
    """

    def __init__(self, rig: DockRig) -> None:
        self.is_here = True
        self.codes: dict[Verb, Code] = {}
        self.cut: dict[Verb, str] = {}
        self.verbs: list[Verb] = []  # what the driver was asked
        self._rig = rig
        self._runner: DockRunner | None = None
        self._cutting: asyncio.Task[None] | None = None

    async def set(self) -> None:
        """Has it be as ``is_here`` says."""
        if self._cutting is not None:
            await self._cutting
            self._cutting = None
        if self.is_here and self._runner is None:
            speech = Speech.V1 if self._rig.declares else Speech.V0
            self._runner = await self._rig.connected.dial_in(Troubled(self._rig), speech=speech)
        elif not self.is_here and self._runner is not None:
            await self._end()

    async def passed(self, verb: Verb) -> str:
        """Called by the driver when it is asked; what to do when it has done it."""
        self.verbs.append(verb)
        how = self.cut.pop(verb, "")
        if how == "before":
            await self.sever()
        if verb in self.codes:
            raise MachineError(self.codes[verb], "as the test wants it")
        return how

    async def sever(self) -> None:
        """Ends the connection; the operation that is under way never returns."""
        self._cutting = asyncio.create_task(self._end())
        await asyncio.get_running_loop().create_future()

    async def _end(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.stop(0)
        await until(lambda: self._rig.connected.hub.info(KEY) is None, what="the driver is gone")


class Troubled(Driver):
    """The driver's program: the simulated cloud, and what the test does to the line."""

    def __init__(self, rig: DockRig) -> None:
        self._line = rig.line
        self._behind = SimulatedDriver.of(rig.cloud, waits=False)
        self.traits = self._behind.traits

    async def create(self, spec: MachineSpec) -> Machine:
        how = await self._line.passed(Verb.CREATE)
        return await self._answered(how, await self._behind.create(spec))

    async def delete(self, machine: Machine) -> None:
        how = await self._line.passed(Verb.DELETE)
        await self._behind.delete(machine)
        await self._answered(how, None)

    async def list(self) -> Sequence[Machine]:
        how = await self._line.passed(Verb.LIST)
        return await self._answered(how, await self._behind.list())

    async def shapes(self) -> Sequence[Shape]:
        return await self._behind.shapes()

    async def prices(self) -> Sequence[Price]:
        return await self._behind.prices()

    async def _answered(self, how: str, answer: T) -> T:
        if how == "after":
            await self._line.sever()
        return answer


@dataclass
class DockRig(Rig):
    """The cloud "sim" of the engine is a driver that has dialled in; behind it is the simulated cloud."""

    declares: bool = True  # False: it speaks the protocol of 2018, in which it declares nothing
    connected: ConnectedDriver = field(default_factory=ConnectedDriver)
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.line = Line(self)

    def driver(self) -> Driver:
        return self.connected.cloud()

    async def start(self) -> EngineProvider:
        await self.line.set()
        return await super().start()

    async def turn(self, seconds: float = 0.0) -> None:
        await self.line.set()
        await super().turn(seconds)
        await self.line.set()


@asynccontextmanager
async def docked(rig: DockRig) -> AsyncIterator[DockRig]:
    """Started here, closed at the end."""
    async with rig.connected, running(rig):
        yield rig
