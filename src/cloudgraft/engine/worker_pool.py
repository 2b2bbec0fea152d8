"""The workers, one for each configured cloud: starts, replaces and stops them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError

__all__ = ["NoDriver", "WorkerPool", "made"]


# -- What stands in for a driver that cannot be made, so that its cloud is down and all others are not -----------------


log = logging.getLogger("cloudgraft.engine")


class NoDriver(Driver):
    """Refuses everything, and says why."""

    traits = DriverTraits(complete_list=False)

    def __init__(self, why: str) -> None:
        self._why = why

    async def create(self, spec: MachineSpec) -> Machine:
        """Not possible."""
        raise PreconditionError(self._why)

    async def delete(self, machine: Machine) -> None:
        """Not possible."""
        raise PreconditionError(self._why)

    async def list(self) -> Sequence[Machine]:
        """Not possible."""
        raise PreconditionError(self._why)


def made(name: str, declared: CloudDeclaration) -> Driver:
    """The cloud's driver; one that cannot be made is this cloud's trouble, and nobody else's (law 6)."""
    try:
        return declared.make()
    except Exception as error:
        log.exception("a driver cannot be made", extra={"cloud": name})
        known = error.message if isinstance(error, CloudgraftError) else f"{type(error).__name__}, see the log"
        return NoDriver(f"its driver cannot be made ({known}); correct that, and change the cloud or restart")


_FIRST_LOOK: Final = 10.0  # seconds that a start waits for clouds whose groups cannot be served without them


class WorkerPool:
    """Employs workers and lets them go. With ``is_stepped`` none works by itself."""

    def __init__(self, context: EngineContext, *, is_stepped: bool) -> None:
        self.workers: dict[str, Worker] = {}
        self.last_calls = 0.0  # seconds that calls under way get when a worker is let go
        self._context = context
        self._is_stepped = is_stepped
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def turn(self) -> None:
        """One pass of every worker, by hand."""
        for worker in list(self.workers.values()):
            await worker.turn()

    async def exchange(self, old: Mapping[str, CloudDeclaration], new: Mapping[str, CloudDeclaration]) -> None:
        """Makes workers for new clouds, lets those of removed ones go, and hands new settings to the others."""
        former: dict[str, asyncio.Task[None]] = {}
        for name in list(self.workers):
            declared = new.get(name)
            if declared is None or declared.fingerprint != old[name].fingerprint:
                former[name] = self._retire(name)
            else:
                self.workers[name].configure(declared.settings)
        for name, declared in new.items():
            if name not in self.workers:
                self._employ(name, Worker(made(name, declared), declared.settings, self._context), former.get(name))
        if former and self._is_stepped:
            await asyncio.wait(former.values())
        for worker in list(self.workers.values()):  # a guard that is new knows nothing yet
            await worker.observer.count()

    async def first_look(self, needed: Collection[str]) -> None:
        """Waits, not for long, for clouds without which something cannot be served."""
        waiting = [worker for name, worker in self.workers.items() if name in needed]
        if self._is_stepped:
            await self.turn()
        elif waiting:
            looks = [asyncio.create_task(worker.looked.wait()) for worker in waiting]
            _, late = await asyncio.wait(looks, timeout=_FIRST_LOOK)
            for look in late:
                look.cancel()
            if late:
                await asyncio.wait(late)

    def dismiss(self) -> set[asyncio.Task[None]]:
        """Lets all of them go; gives those who are still leaving, to be waited for."""
        return {*self._leaving, *(self._retire(name) for name in list(self.workers))}

    def _employ(self, name: str, worker: Worker, former: asyncio.Task[None] | None) -> None:
        self.workers[name] = worker
        self._context.fleet.listen(name, worker.on_change)
        if not self._is_stepped:
            self._tasks[name] = asyncio.create_task(_run(worker, former), name=f"cloud {name}")

    def _retire(self, name: str) -> asyncio.Task[None]:
        """Ends a worker. No RPC waits for it: its driver may hang (law 1)."""
        worker = self.workers.pop(name)
        self._context.fleet.unlisten(name)
        ending = asyncio.create_task(self._end(worker, self._tasks.pop(name, None)))
        self._leaving.add(ending)
        ending.add_done_callback(self._leaving.discard)
        return ending

    async def _end(self, worker: Worker, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if worker.name not in self.workers:  # nobody looks after its machines here, so nobody may touch their nodes
            self._context.nodes.drop(worker.name)
        await worker.close(self.last_calls)


async def _run(worker: Worker, former: asyncio.Task[None] | None) -> None:
    """Works once the one before has let go of the cloud."""
    if former is not None:
        await asyncio.wait({former})
    await worker.run()
