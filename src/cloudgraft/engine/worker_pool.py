"""Starts, replaces and stops the workers, one for each configured cloud."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.engine.reconcile.worker import Worker
from cloudgraft.sdk.common.causes import cause
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError

# -- broken drivers ----------------------------------------------------------------------------------------------------
# Stands in for a driver that cannot be made, so that only its own cloud is down.


log = logging.getLogger("cloudgraft.engine")


class NoDriver(Driver):
    """Refuses every call, and says why."""

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
    """Makes the cloud's driver. A failure affects only this cloud (law 6)."""
    try:
        return declared.make()
    except Exception as error:
        log.exception("a driver cannot be made", extra={"cloud": name})
        known = error.message if isinstance(error, CloudgraftError) else f"{cause(error)}, see the log"
        return NoDriver(f"its driver cannot be made ({known}); correct that, and change the cloud or restart")


_FIRST_LOOK: Final = 10.0  # seconds that a start waits for clouds whose groups cannot be served without them


class WorkerPool:
    """Starts and stops workers. With ``is_stepped`` none runs by itself."""

    def __init__(self, context: EngineContext, *, is_stepped: bool) -> None:
        self.workers: dict[str, Worker] = {}
        self.last_calls = 0.0  # seconds that calls under way get when a worker stops
        self._context = context
        self._is_stepped = is_stepped
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def turn(self) -> None:
        """Makes one pass of every worker, for a stepped engine."""
        for worker in list(self.workers.values()):
            await worker.turn()

    async def exchange(self, old: Mapping[str, CloudDeclaration], new: Mapping[str, CloudDeclaration]) -> None:
        """Makes workers for new clouds, stops those of removed ones, and passes new settings to the others."""
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
        for worker in list(self.workers.values()):  # a new guard has no counts yet
            await worker.observer.count()

    async def first_look(self, needed: Collection[str]) -> None:
        """Waits briefly for the first list of clouds whose groups cannot be served without it."""
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
        """Stops all workers; returns the tasks that are still ending, for the caller to await."""
        return {*self._leaving, *(self._retire(name) for name in list(self.workers))}

    def _employ(self, name: str, worker: Worker, former: asyncio.Task[None] | None) -> None:
        self.workers[name] = worker
        self._context.fleet.listen(name, worker.on_change)
        if not self._is_stepped:
            self._tasks[name] = asyncio.create_task(_run(worker, former), name=f"cloud {name}")

    def _retire(self, name: str) -> asyncio.Task[None]:
        """Stops a worker. No RPC waits for it: its driver may hang (law 1)."""
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
        if worker.name not in self.workers:  # its machines have no worker here, so their nodes must not be touched
            self._context.nodes.drop(worker.name)
        await worker.close(self.last_calls)


async def _run(worker: Worker, former: asyncio.Task[None] | None) -> None:
    """Runs the worker after the former worker of the cloud has ended."""
    if former is not None:
        await asyncio.wait({former})
    await worker.run()
