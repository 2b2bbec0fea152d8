"""Implements the driver ``liqo``: a machine is a ResourceSlice of a remote cluster, and becomes a virtual node."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgraft.discovery.model import Market
from cloudgraft.kube.connect import connect
from cloudgraft.liqo.catalog import OfferedShapes
from cloudgraft.liqo.creator import Creator
from cloudgraft.liqo.maintenance import Maintenance
from cloudgraft.liqo.options import DiscoveryOptions, LiqoOptions, MachineSettings
from cloudgraft.liqo.peering.peering import Peering
from cloudgraft.liqo.peering.tenancy import cluster_id_of
from cloudgraft.liqo.placement import CoolDowns
from cloudgraft.liqo.reservations import MachineReservations
from cloudgraft.liqo.slices import PROVIDER_ID, Slices
from cloudgraft.sdk.common.extras import check_installed
from cloudgraft.sdk.driver import (
    Driver,
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    Ownership,
    Price,
    ProviderIdBy,
    Shape,
)
from cloudgraft.sdk.errors import PreconditionError

if TYPE_CHECKING:  # an extra, and slow to import
    from cloudgraft.discovery.client import DiscoveryClient

log = logging.getLogger("cloudgraft.liqo")


class LiqoDriver(Driver):
    """Remote clusters that a discovery server knows, as virtual nodes, by Liqo. Cost decides which."""

    Options = LiqoOptions
    MachineSettings = MachineSettings
    traits = DriverTraits(
        ownership=Ownership.TAGS,
        idempotency=Idempotency.TOKEN,
        provider_id=PROVIDER_ID,
        provider_id_by=ProviderIdBy.CLOUD_CONTROLLER,  # this driver's maintenance sets it
        catalog_lasts=timedelta(seconds=30),  # a search at discovery is cheap, and prices decide
        create_timeout=timedelta(minutes=10),  # peering with a cluster for the first time takes minutes
    )

    def __init__(self, options: LiqoOptions, market: Market | None = None) -> None:
        """``market`` replaces the discovery client that the options describe.

        Raises PreconditionError without the extra.
        """
        check_installed("the driver liqo", "lightkube", "httpx2", extra="liqo")
        self._options = options
        self._given = market
        self._work: _Work | None = None

    async def start(self) -> None:
        """Opens the connections, and starts maintenance. No server need be reachable yet."""
        if self._work is None:
            self._work = _Work(self._options, self._given)
            self._work.maintenance.start()

    async def close(self) -> None:
        """Stops maintenance. Unfinished creates stay as they are: a repeated call continues them by name."""
        work, self._work = self._work, None
        if work is not None:
            await work.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Returns when a remote cluster has granted all that the shape contains; the node appears later."""
        return (await self._started().creator.create(spec)).machine()

    async def delete(self, machine: Machine) -> None:
        """Deletes the slice. The machine is listed as being deleted until Liqo has drained and removed the node."""
        await self._started().delete(machine)

    async def list(self) -> Sequence[Machine]:
        """Every slice that we created, granted or not."""
        return [one.machine() for one in await self._started().slices.all()]

    async def shapes(self) -> Sequence[Shape]:
        """The sizes, for any cluster and for each one, and the total of each cluster."""
        return await self._started().catalog.shapes()

    async def prices(self) -> Sequence[Price]:
        """The price of each shape, by live offers."""
        return await self._started().catalog.prices()

    def _started(self) -> _Work:
        if self._work is None:
            raise PreconditionError("the Liqo driver is not started, or is closed")
        return self._work


class _Work:
    """Everything that exists between start and close."""

    def __init__(self, options: LiqoOptions, market: Market | None) -> None:
        self._options = options
        self._client = connect(options.kubeconfig, timeout=options.timeouts.api.total_seconds())
        self._own: DiscoveryClient | None = None if market is not None else _discovery(options.discovery)
        found = market or self._own
        assert found is not None  # noqa: S101 - one of the two is there
        self._id = options.clusterID
        self.slices = Slices(self._client)
        self._reservations = MachineReservations(found, self._consumer, options.reserve_for.total_seconds())
        self.catalog = OfferedShapes(found, options, self._reservations.clusters)
        peering = Peering(self._client, self._consumer, found, options)
        self._cool_downs = CoolDowns(options.cool_down.total_seconds())
        self.creator = Creator(
            market=found,
            slices=self.slices,
            peering=peering,
            reservations=self._reservations,
            cool_downs=self._cool_downs,
            options=options,
            everything=self.catalog.everything,
        )
        self.maintenance = Maintenance(
            self._client, peering, self._reservations, options, in_use=lambda: set(self.creator.at_work)
        )

    async def _consumer(self) -> str:
        """Our own cluster's id, which never changes."""
        if not self._id:
            self._id = await cluster_id_of(self._client, self._options.liqo_namespace)
        return self._id

    async def delete(self, machine: Machine) -> None:
        found = await self.slices.find(machine.name)
        if found is None or found.uid != machine.machine_id:
            if found is None:
                await self._reservations.forget(machine.name)
            return
        is_old = time.time() - found.created_at > self._options.timeouts.node.total_seconds()
        if is_old and not found.is_deleting and not self.maintenance.is_ready(machine.name):
            why = f"its node {machine.name} was never ready, or is no longer"
            self._cool_downs.cool(found.cluster, why, asyncio.get_running_loop().time())
        await self.slices.delete(found)
        if await self.slices.find(machine.name) is None:
            await self._reservations.forget(machine.name)

    async def close(self) -> None:
        await self.maintenance.stop()
        await self._client.close()
        if self._own is not None:
            await self._own.close()


def _discovery(options: DiscoveryOptions) -> DiscoveryClient:
    # Here and not above: extras, and slow to import.
    from cloudgraft.discovery.client import DiscoveryClient  # noqa: PLC0415
    from cloudgraft.web.client import ClientTls  # noqa: PLC0415

    tls = None
    if options.address.startswith("https:"):
        tls = ClientTls(ca=options.ca_file, cert=options.cert_file, key=options.key_file)
    return DiscoveryClient(
        options.address, tls=tls, token_file=options.token_file, timeout=options.timeout.total_seconds()
    )
