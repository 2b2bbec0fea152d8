"""The driver ``simulated``: machines of a simulated cloud, in this process or in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Ownership, Price, ProviderIdBy, Shape
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.simcloud import options as schema
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.json_forms import order_for
from cloudgraft.simcloud.http.link import HttpLink
from cloudgraft.simcloud.links import InProcessLink, Link
from cloudgraft.simcloud.pages import read_all
from cloudgraft.simcloud.shapes import Catalog

__all__ = ["SimulatedDriver"]


class SimulatedDriver(Driver):
    """A simulated cloud: in this process, or a `cloudgraft simcloud` by its URL.

    It hides nothing: what the cloud does not say for certain (a lost answer, half a page) is an error.
    """

    Options = schema.SimulatedOptions
    MachineSettings = schema.MachineSettings

    def __init__(self, options: schema.SimulatedOptions | None = None) -> None:
        """Without options: a cloud of its own in memory, in which nothing goes wrong."""
        self._options = options or schema.SimulatedOptions()
        self.traits = _traits(self._options)
        self._link: Link | None = None
        if not self._options.url:
            Catalog(self._options)  # a mistake in them is told now, not at the start

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

    async def start(self) -> None:
        """Opens the cloud's ledger, or makes ready to call it; a cloud that is not there is met by the first call."""
        if self._link is None:
            self._link = HttpLink(self._options) if self._options.url else await InProcessLink.open(self._options)

    async def close(self) -> None:
        """Lets go of the ledger, or of the connections."""
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
