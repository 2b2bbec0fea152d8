"""How the driver reaches its cloud: what every way has in common, and the way to one in the same process."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from cloudgraft.sdk.driver import Machine, Price, Shape
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.threads import BlockingPool
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.fate import CloudFailureError, Fate, LostAnswerError, Operation
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.pages import Page
from cloudgraft.simcloud.records import Order

__all__ = ["InProcessLink", "Link"]

T = TypeVar("T")
_THREADS = 4  # calls wait for each other anyway
_LOOK = 0.02  # seconds between two looks whether the cloud still hangs
_CHANGES = frozenset({Operation.CREATE, Operation.DELETE})


class Link(Protocol):
    """Calls to one simulated cloud; each raises errors of :mod:`cloudgraft.sdk.errors`."""

    async def create(self, order: Order) -> Machine:
        """The machine that was made, or was there already."""

    async def delete(self, machine_id: str, client: str) -> None:
        """NotFoundError when it is gone."""

    async def mark(self, machine_id: str, tags: Mapping[str, str | None]) -> None:
        """NotFoundError when it is gone."""

    async def page(self, limit: int, cursor: str) -> Page[Machine]:
        """Some of the machines."""

    async def shapes(self) -> Sequence[Shape]:
        """The machine types on offer."""

    async def prices(self) -> Sequence[Price]:
        """What an hour of each costs."""

    async def close(self) -> None:
        """Lets go of everything."""


class InProcessLink:
    """To a cloud in this process, which meets the same faults as one behind a port."""

    def __init__(
        self,
        cloud: SimulatedCloud,
        *,
        pool: BlockingPool | None = None,
        waits: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``pool`` keeps a ledger on disk off the event loop; without one, calls end before anything else runs.

        Without ``waits`` no time passes in a call, for those who simulate time: latency is left out, and a cloud that
        hangs answers with DeadlineError at once, to do the work when it no longer hangs.
        """
        self._cloud = cloud
        self._pool = pool
        self._waits = waits
        self._sleep = sleep
        self._is_owner = False

    @classmethod
    async def open(cls, options: SimulatedOptions) -> InProcessLink:
        """To a new cloud, or one that its ledger brings back; it is closed with this link."""
        pool = BlockingPool("simulated", threads=_THREADS)
        try:
            link = cls(await pool.run(SimulatedCloud, options), pool=pool)
        except BaseException:
            pool.close()
            raise
        link._is_owner = True
        return link

    async def create(self, order: Order) -> Machine:
        """See :meth:`Link.create`."""
        machine, _ = await self._perform(Operation.CREATE, functools.partial(self._cloud.create, order))
        return machine.as_machine()

    async def delete(self, machine_id: str, client: str) -> None:
        """See :meth:`Link.delete`."""
        await self._perform(Operation.DELETE, functools.partial(self._cloud.delete, machine_id, client=client))

    async def mark(self, machine_id: str, tags: Mapping[str, str | None]) -> None:
        """See :meth:`Link.mark`."""
        await self._perform(Operation.MARK, functools.partial(self._cloud.mark, machine_id, tags))

    async def page(self, limit: int, cursor: str) -> Page[Machine]:
        """See :meth:`Link.page`."""
        await asyncio.sleep(0)  # a long list without threads must not hold up the event loop
        return await self._perform(Operation.LIST, functools.partial(self._page, limit, cursor))

    async def shapes(self) -> Sequence[Shape]:
        """See :meth:`Link.shapes`."""
        return await self._perform(Operation.READ, self._cloud.shapes)

    async def prices(self) -> Sequence[Price]:
        """See :meth:`Link.prices`."""
        return await self._perform(Operation.READ, self._cloud.prices)

    async def close(self) -> None:
        """Closes the cloud, unless it belongs to somebody else."""
        if self._pool is not None:
            self._pool.close()
        if self._is_owner:
            await asyncio.to_thread(self._cloud.close)

    def _page(self, limit: int, cursor: str) -> Page[Machine]:
        page = self._cloud.page(limit, cursor)
        machines = [machine.as_machine() for machine in page.machines]
        return Page(machines=machines, count=page.count, more=page.more, cursor=page.cursor)

    async def _perform(self, operation: Operation, work: Callable[[], T]) -> T:
        fate = self._cloud.fate(operation)
        fulfil = functools.partial(fate.fulfil, work, self._cloud.postpone)
        try:
            await self._wait(fate)
        except (asyncio.CancelledError, LostAnswerError):
            if operation in _CHANGES:  # it was sent: that the caller has given up does not call it back
                self._cloud.postpone(fulfil, fate.delay)
            raise
        try:
            return fulfil() if self._pool is None else await self._pool.run(fulfil)
        except LostAnswerError:
            if self._waits and self._cloud.chaos.lost_after:
                await self._sleep(self._cloud.chaos.lost_after)
            raise
        except CloudFailureError as error:
            if operation in _CHANGES:
                raise
            raise UnavailableError(error.message) from error  # nothing can have been done

    async def _wait(self, fate: Fate) -> None:
        if not self._waits:
            if self._cloud.hangs_for():
                raise LostAnswerError("the simulated cloud does not answer; whether it was done is not known")
            return
        if fate.delay:
            await self._sleep(fate.delay)
        while left := self._cloud.hangs_for():
            await self._sleep(min(left, _LOOK))
