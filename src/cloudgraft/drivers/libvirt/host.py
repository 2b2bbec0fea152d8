"""Performs single steps on a host. Each may be repeated: a thing that exists, or is gone, already is no error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import libvirt

from cloudgraft.drivers.libvirt.connection import Connection, code_of, mapped_errors
from cloudgraft.drivers.libvirt.domains import (
    NAMESPACE,
    Image,
    Marks,
    Offer,
    may_be_ours,
    new_volume,
    read_image,
    read_offer,
)
from cloudgraft.drivers.libvirt.errors import GONE, NO_METADATA, NO_POOL, NO_VOLUME, NOT_NOW
from cloudgraft.drivers.libvirt.options import LibvirtOptions, Network
from cloudgraft.drivers.libvirt.order import Order
from cloudgraft.sdk.errors import UnavailableError

_CHUNK: Final = 128 * 1024  # bytes of an upload that are sent at once
_STATS: Final = libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_BALLOON
_UNDEFINE: Final = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A domain, and its state from one call."""

    domain: Any
    id: str
    name: str
    state: int
    reason: int
    memory: int = 0  # bytes that it may have


class Host:
    """One host, through one connection."""

    def __init__(self, options: LibvirtOptions, connection: Connection) -> None:
        self._options = options
        self._connection = connection
        self._offer: Offer | None = None

    # -- reads ---------------------------------------------------------------------------------------------------------

    def domains(self) -> list[Seen]:
        """Returns all domains of the host, in one call that does not wait for a domain that hangs."""
        connection = self._connection.get()
        with mapped_errors("listing the domains"):
            flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
            return [_seen(domain, stats) for domain, stats in connection.getAllDomainStats(_STATS, flags)]

    def find(self, domain_id: str) -> Seen | None:
        """Returns the domain with this id, if it exists."""
        connection = self._connection.get()
        with mapped_errors(f"looking for the domain {domain_id}"), _unless(GONE):
            domain = connection.lookupByUUIDString(domain_id)
            state, reason = domain.state()
            return Seen(domain=domain, id=domain_id, name=domain.name(), state=int(state), reason=int(reason))
        return None

    def marks(self, seen: Seen) -> Marks | None:
        """Reads the marks of a domain; None when it has none. Raises NotFoundError when it is gone."""
        if may_be_ours(seen.id):
            with mapped_errors(f"reading the marks of {seen.name}"), _unless(NO_METADATA):
                kind = libvirt.VIR_DOMAIN_METADATA_ELEMENT
                return Marks.read(seen.domain.metadata(kind, NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CONFIG), seen.id)
        return None

    def offer(self) -> Offer:
        """Returns what the host can run; reads it once."""
        if self._offer is None:
            connection = self._connection.get()
            with mapped_errors("asking what the host can run"):
                self._offer = read_offer(connection.getCapabilities())
        return self._offer

    def memory(self) -> int:
        """Returns the bytes of memory that the host has."""
        connection = self._connection.get()
        with mapped_errors("asking how much memory the host has"):
            return int(connection.getInfo()[1]) * 1024 * 1024

    def room(self) -> int:
        """Returns the free bytes in the pool."""
        pool = self.pool(self._options.pool)
        with mapped_errors(f"looking how full the storage pool {self._options.pool} is"):
            with _unless(libvirt.VIR_ERR_INTERNAL_ERROR):  # it is busy: the last known state must do
                pool.refresh(0)  # disks grow without libvirt's knowledge
            return int(pool.info()[3])

    def image(self, name: str) -> tuple[Any, Image]:
        """Finds the volume that disks are created from."""
        place = self._options.image_pool or self._options.pool
        pool = self.pool(place)
        with mapped_errors(f"looking for the image {name} in the storage pool {place}"):
            with _unless(NO_VOLUME):
                return _read(pool.storageVolLookupByName(name))
            pool.refresh(0)  # it may have been copied there without libvirt's knowledge
            return _read(pool.storageVolLookupByName(name))

    def pool(self, name: str) -> Any:
        """Finds a storage pool; raises UnavailableError when it is not active."""
        connection = self._connection.get()
        with mapped_errors(f"looking for the storage pool {name}"):
            pool = connection.storagePoolLookupByName(name)
            if not pool.isActive():
                raise UnavailableError(f"the storage pool {name} is not active; `virsh pool-start {name}` starts it")
            return pool

    def check_networks(self, networks: Sequence[Network]) -> None:
        """Raises when a network of libvirt is missing or not active. libvirt does not know the bridges of the host."""
        connection = self._connection.get()
        for network in networks:
            if network.network:
                with mapped_errors(f"looking for the network {network.network}"):
                    if not connection.networkLookupByName(network.network).isActive():
                        fix = f"`virsh net-start {network.network}` starts it"
                        raise UnavailableError(f"the network {network.network} is not active; {fix}")

    # -- creates -------------------------------------------------------------------------------------------------------

    def define(self, xml: str, name: str) -> Any:
        """Defines the domain with its marks, in one call; starts nothing, neither now nor with the host."""
        connection = self._connection.get()
        with mapped_errors(f"defining {name}", is_change=True):
            return connection.defineXML(xml)

    def make_disk(self, place: str, volume: str, order: Order) -> None:
        """Creates the disk in this pool. Replaces an existing one, which may be half a copy."""
        pool = self.pool(place)
        (base, image), size, kind = order.source, order.size, order.plan.disk_format
        self._remove_volume(pool, volume)
        with mapped_errors(f"making the disk {volume}", is_change=True):
            if not order.is_clone:
                pool.createXML(new_volume(volume, capacity=size, kind=kind, base=image), 0)
                return
            made = pool.createXMLFrom(new_volume(volume, capacity=size, kind=kind), base, 0)
            if int(made.info()[1]) < size:  # a copy is as large as what it was made from
                made.resize(size)

    def make_seed(self, place: str, volume: str, content: bytes) -> None:
        """Creates the CD with the user data in this pool. Replaces an existing one."""
        pool = self.pool(place)
        self._remove_volume(pool, volume)
        with mapped_errors(f"uploading the seed {volume}", is_change=True):
            made = pool.createXML(new_volume(volume, capacity=len(content), kind="raw"), 0)
            stream = self._connection.get().newStream(0)
            try:
                made.upload(stream, 0, len(content), 0)
                for start in range(0, len(content), _CHUNK):
                    _send(stream, content[start : start + _CHUNK])
                stream.finish()
            except BaseException:
                with suppress(libvirt.libvirtError):  # it was never begun, or its connection is gone
                    stream.abort()
                raise

    def start(self, domain: Any, name: str) -> None:
        """Starts it; does nothing when it runs already."""
        with mapped_errors(f"starting {name}", is_change=True):
            try:
                domain.create()
            except libvirt.libvirtError as error:
                if code_of(error) != NOT_NOW or not domain.isActive():  # other causes have the same code
                    raise

    def is_running(self, domain: Any, name: str) -> bool:
        """Returns whether it runs, perhaps started by another process."""
        with mapped_errors(f"looking whether {name} runs"):
            return bool(domain.isActive())

    # -- deletes -------------------------------------------------------------------------------------------------------

    def stop(self, domain: Any, name: str) -> None:
        """Powers it off at once."""
        with mapped_errors(f"switching {name} off", is_change=True), _unless(GONE):
            try:
                domain.destroy()
            except libvirt.libvirtError as error:
                if code_of(error) != NOT_NOW or domain.isActive():
                    raise

    def remove_volumes(self, pool: str, *volumes: str) -> None:
        """Removes those that exist. A pool that is gone has none."""
        connection = self._connection.get()
        with mapped_errors(f"looking for the storage pool {pool}"), _unless(NO_POOL):
            found = connection.storagePoolLookupByName(pool)
            for volume in volumes:
                self._remove_volume(found, volume)

    def undefine(self, domain: Any, name: str) -> None:
        """Removes the domain, and what libvirt stores of it: its NVRAM, its saved state, its snapshots."""
        with mapped_errors(f"undefining {name}", is_change=True), _unless(GONE):
            domain.undefineFlags(_UNDEFINE)

    def _remove_volume(self, pool: Any, volume: str) -> None:
        with mapped_errors(f"removing the volume {volume}", is_change=True), _unless(NO_VOLUME):
            pool.storageVolLookupByName(volume).delete(0)


def _read(volume: Any) -> tuple[Any, Image]:
    return volume, read_image(volume.XMLDesc(0))


def _seen(domain: Any, stats: dict[str, Any]) -> Seen:
    return Seen(
        domain=domain,
        id=domain.UUIDString(),
        name=domain.name(),
        state=int(stats.get("state.state", 0)),
        reason=int(stats.get("state.reason", 0)),
        memory=int(stats.get("balloon.maximum", 0)) * 1024,
    )


@contextmanager
def _unless(*codes: int) -> Iterator[None]:
    """Ignores errors with these codes: they say that it is done already, or that there is nothing."""
    try:
        yield
    except libvirt.libvirtError as error:
        if code_of(error) not in codes:
            raise


def _send(stream: Any, chunk: bytes) -> None:
    while chunk:
        chunk = chunk[stream.send(chunk) :]
