"""Drivers without ``async``: each call in a thread, which knows what the call is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.sdk.blocking import BlockingDriver
from cloudgraft.sdk.driver import Driver, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.threads import BlockingPool

__all__ = ["ThreadedDriver"]

_CLASSES: Final = 8  # threads


class ThreadedDriver(Driver):
    """As ``sdk.blocking.as_driver``, with the caller's context in the thread: ``current_class()`` works there.

    A thread cannot be stopped: a list that hangs keeps its own long after its caller has given up. So changes and reads
    have threads of their own, and neither can take those of the other.
    """

    def __init__(self, inner: BlockingDriver, threads: int) -> None:
        """``threads`` is for changes, and as many for reads."""
        name = type(inner).__name__
        self._inner = inner
        self._changes = BlockingPool(name, threads=threads, waiting=threads)
        self._reads = BlockingPool(f"{name} (reads)", threads=threads, waiting=threads)
        self._rest = BlockingPool(f"{name} (classes)", threads=_CLASSES)
        self.traits = inner.traits
        self.MachineSettings = inner.MachineSettings

    async def create(self, spec: MachineSpec) -> Machine:
        """See :meth:`Driver.create`."""
        return await self._changes.run(self._inner.create, spec)

    async def delete(self, machine: Machine) -> None:
        """See :meth:`Driver.delete`."""
        await self._changes.run(self._inner.delete, machine)

    async def list(self) -> Sequence[Machine]:
        """See :meth:`Driver.list`."""
        return await self._reads.run(self._inner.list)

    async def shapes(self) -> Sequence[Shape]:
        """See :meth:`Driver.shapes`."""
        return await self._reads.run(self._inner.shapes)

    async def prices(self) -> Sequence[Price]:
        """See :meth:`Driver.prices`."""
        return await self._reads.run(self._inner.prices)

    async def use(
        self, call: Callable[[MachineClass, Secret | None], None], machine_class: MachineClass, secret: Secret | None
    ) -> None:
        """The inner driver's own method of that name, in a thread."""
        await self._rest.run(call, machine_class, secret)

    async def start(self) -> None:
        """See :meth:`Driver.start`."""
        await self._rest.run(self._inner.start)
        self.traits = self._inner.traits  # it may know more of its cloud now

    async def close(self) -> None:
        """In a thread of its own: the others may all hang, and that is when closing matters."""
        for pool in (self._changes, self._reads, self._rest):
            pool.close()
        last = BlockingPool("close", threads=1)
        try:
            await last.run(self._inner.close)
        finally:
            last.close()
