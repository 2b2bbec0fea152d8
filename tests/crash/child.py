"""The process under test: a real engine on a real journal, driven by a pipe as the autoscaler drives it by gRPC.

It answers one request at a time, after the engine has answered, and works on by itself in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.operations.pauses import pause, resume
from cloudgraft.engine.operations.scaling import ScaleOrder, scale
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import Contents, Scope
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.crash import faults
from tests.crash.points import Point, Trap
from tests.crash.setting import Order, desired_state, driver_options
from tests.crash.trapped import TrappedDatabase, TrappedDriver


def main(pipe: Connection, order: Order) -> None:
    """Serves until the other side hangs up, is told to stop, or is killed."""
    logging.basicConfig(
        filename=order.directory / "child.log",
        level=logging.INFO,
        format=f"%(asctime)s {order.phase} %(levelname)s %(name)s: %(message)s",
    )
    faults.plant(order.fault)
    asyncio.run(_Child(pipe, order).serve())


class _Child:
    """One life of the engine."""

    def __init__(self, pipe: Connection, order: Order) -> None:
        self._pipe = pipe
        self._order = order
        self._trap = Trap(order.phase, order.point)
        journal = SqlJournal(TrappedDatabase(order.journal, self._trap))
        self._engine = Engine(desired_state(order, self._driver), journal)
        self._provider = EngineProvider(self._engine)

    def _driver(self) -> Driver:
        return TrappedDriver(SimulatedDriver(driver_options(self._order.url, self._order.variant)), self._trap)

    async def serve(self) -> None:
        await self._provider.start()
        # At a first start, calls are refused until the cloud was listed.
        await until(lambda: not self._engine.trouble(), what="the first list")
        self._pipe.send(("ok", None))
        requests: asyncio.Queue[tuple[Any, ...] | None] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._receive, requests)
        while (request := await requests.get()) is not None:
            self._pipe.send(await self._answer(*request))
        await self._provider.close()

    def _receive(self, requests: asyncio.Queue[tuple[Any, ...] | None]) -> None:
        try:
            requests.put_nowait(self._pipe.recv())
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            requests.put_nowait(None)

    async def _answer(self, name: str, *arguments: Any) -> tuple[str, object]:
        own: dict[str, Callable[..., Awaitable[object]]] = {
            "enter": self._enter,
            "passed": self._passed,
            "configure": self._configure,
            "pause": self._pause,
            "resume": self._resume,
            "scale": self._scale,
            "journal": self._journal,
            "names": self._names,
            "told": self._told,
        }
        call = own.get(name) or getattr(self._provider, name)
        try:
            return "ok", await call(*arguments)
        except CloudgraftError as error:
            return "error", f"{type(error).__name__}: {error.message}"

    # -- beside what the autoscaler asks -----------------------------------------------------------------------------

    async def _enter(self, phase: str) -> None:
        self._trap.enter(phase)

    async def _passed(self) -> dict[Point, int]:
        return self._trap.passed()

    async def _configure(self, config: int) -> None:
        """The configuration file has changed."""
        self._engine.reconfigure(desired_state(replace(self._order, config=config), self._driver))

    async def _pause(self, group: str) -> None:
        await pause(self._engine, Scope.GROUP, group)

    async def _resume(self, group: str) -> None:
        await resume(self._engine, Scope.GROUP, group)

    async def _scale(self, group: str, change: str, key: str, machines: Sequence[str]) -> None:
        await scale(self._engine, ScaleOrder(group=group, change=change, machines=machines), key)

    async def _journal(self) -> tuple[Contents, list[str]]:
        """What is on disk, and the machines of which memory says something else."""
        contents = await self._engine.journal.load()
        known, stored = self._engine.fleet.machines, {record.name: record for record in contents.machines}
        return contents, [name for name in {*known, *stored} if known.get(name) != stored.get(name)]

    async def _names(self) -> dict[str, str]:
        """The machine behind each id that it has or had."""
        machines = self._engine.fleet.machines.values()
        ids = {record.placeholder: record.name for record in machines}
        return ids | {record.provider_id: record.name for record in machines if record.provider_id}

    async def _told(self, kind: str) -> list[str]:
        """The machines that events of this kind are about."""
        events = await self._engine.journal.events(EventQuery(kinds=(kind,), limit=1000))
        return [event.machine for event in events]
