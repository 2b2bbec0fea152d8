"""Provides the driver ``simulated``: machines of a simulated cloud, in this process or in another."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Ownership, Price, ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError, UnavailableError
from cloudgraft.simcloud import options as schema
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.json_forms import order_for
from cloudgraft.simcloud.http.link import HttpLink
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.outcomes import CloudFailureError, LostAnswerError, Operation, Outcome
from cloudgraft.simcloud.records import Order, Page, read_all
from cloudgraft.simcloud.shapes import Catalog

# -- links -------------------------------------------------------------------------------------------------------------
# How the driver reaches its cloud: the common interface, and the link to one in the same process.


T = TypeVar("T")
_THREADS = 4  # calls wait for each other anyway
_LOOK = 0.02  # seconds between two checks whether the cloud still hangs
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
        """Closes all connections and files."""


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

        Without ``waits`` no time passes in a call, for simulated time: latency is left out, and a cloud that hangs
        answers with DeadlineError at once, and does the work when it no longer hangs.
        """
        self._cloud = cloud
        self._pool = pool
        self._waits = waits
        self._sleep = sleep
        self._is_owner = False

    @classmethod
    async def open(cls, options: SimulatedOptions) -> InProcessLink:
        """A link to a new cloud, or to one restored from its ledger; it is closed with this link."""
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
        """Closes the cloud, if this link made it."""
        if self._pool is not None:
            self._pool.close()
        if self._is_owner:
            await asyncio.to_thread(self._cloud.close)

    def _page(self, limit: int, cursor: str) -> Page[Machine]:
        page = self._cloud.page(limit, cursor)
        machines = [machine.as_machine() for machine in page.machines]
        return Page(machines=machines, count=page.count, more=page.more, cursor=page.cursor)

    async def _perform(self, operation: Operation, work: Callable[[], T]) -> T:
        outcome = self._cloud.outcome(operation)
        carry_out = functools.partial(outcome.carry_out, work, self._cloud.postpone)
        try:
            await self._wait(outcome)
        except (asyncio.CancelledError, LostAnswerError):
            if operation in _CHANGES:  # it was sent: a caller that gives up does not undo it
                self._cloud.postpone(carry_out, outcome.delay)
            raise
        try:
            return carry_out() if self._pool is None else await self._pool.run(carry_out)
        except LostAnswerError:
            if self._waits and self._cloud.chaos.lost_after:
                await self._sleep(self._cloud.chaos.lost_after)
            raise
        except CloudFailureError as error:
            if operation in _CHANGES:
                raise
            raise UnavailableError(error.message) from error  # nothing can have been done

    async def _wait(self, outcome: Outcome) -> None:
        if not self._waits:
            if self._cloud.hangs_for():
                raise LostAnswerError("the simulated cloud does not answer; whether it was done is not known")
            return
        if outcome.delay:
            await self._sleep(outcome.delay)
        while left := self._cloud.hangs_for():
            await self._sleep(min(left, _LOOK))


# -- the driver --------------------------------------------------------------------------------------------------------


class SimulatedDriver(Driver):
    """A simulated cloud: in this process, or a `cloudgraft simcloud` by its URL.

    An uncertain answer of the cloud (a lost answer, half a page) is an error.
    """

    Options = schema.SimulatedOptions
    MachineSettings = schema.MachineSettings
    sets_node_labels = True

    def __init__(self, options: schema.SimulatedOptions | None = None) -> None:
        """Without options: a new cloud in memory, without faults."""
        self._options = options or schema.SimulatedOptions()
        self.traits = _traits(self._options)
        self._link: Link | None = None
        if not self._options.url:
            Catalog(self._options)  # reports a mistake in them now, not at start

    @classmethod
    def of(
        cls,
        cloud: SimulatedCloud,
        *,
        client: str = "",
        waits: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> SimulatedDriver:
        """A driver of a cloud in this process, without threads; see :class:`InProcessLink` for the rest."""
        driver = cls(replace(cloud.options, url="", client=client or cloud.options.client))
        driver._link = InProcessLink(cloud, waits=waits, sleep=sleep)
        return driver

    def known_shapes(self) -> Sequence[Shape] | None:
        """Of a cloud in this process, all of them."""
        return None if self._options.url else Catalog(self._options).shapes()

    async def start(self) -> None:
        """Opens the cloud's ledger, or prepares to call it; a missing cloud is noticed by the first call."""
        if self._link is None:
            self._link = HttpLink(self._options) if self._options.url else await InProcessLink.open(self._options)

    async def close(self) -> None:
        """Closes the ledger, or the connections."""
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Orders a machine; its name is the token."""
        return await self._reach().create(order_for(spec, self._options.client))

    async def delete(self, machine: Machine) -> None:
        """Asks for its deletion; one that is gone is not an error."""
        if not machine.machine_id:
            raise InvalidArgumentError(f"the machine {machine.name!r} has no machine id: it cannot be deleted")
        try:
            await self._reach().delete(machine.machine_id, self._options.client)
        except NotFoundError:
            return

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Puts tags on it, or takes them off."""
        await self._reach().mark(machine.machine_id, tags)

    async def list(self) -> Sequence[Machine]:
        """Every machine of the cloud."""
        link = self._reach()
        return await read_all(lambda cursor: link.page(self._options.page_size, cursor))

    async def shapes(self) -> Sequence[Shape]:
        """The machine types on offer."""
        return await self._reach().shapes()

    async def prices(self) -> Sequence[Price]:
        """What an hour of each costs."""
        return await self._reach().prices()

    def _reach(self) -> Link:
        if self._link is None:
            raise PreconditionError("the driver of the simulated cloud is not started, or is closed")
        return self._link


def _traits(options: schema.SimulatedOptions) -> DriverTraits:
    return DriverTraits(
        ownership=Ownership.TAGS,
        idempotency=options.idempotency,
        list_delay=options.list_lag,
        complete_list=True,
        provider_id_by=ProviderIdBy.KUBELET,  # the simulated one, when there is a cluster
    )
