"""Chooses the template of a machine, and the node where it fits with the most memory left."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import Inventory, Node
from cloudgraft.drivers.proxmox.options import DRIVE, MEBIBYTE, MachineSettings, ProxmoxOptions, ShapeOptions
from cloudgraft.sdk.errors import InvalidArgumentError, OutOfStockError, PermissionDeniedError, UnavailableError
from cloudgraft.sdk.quantity import amount

# -- templates ---------------------------------------------------------------------------------------------------------
# Which templates exist, where they can be cloned to, and which of their disks grows.

_LASTS: Final = 300.0  # seconds for which a template's configuration is cached
_SIZE: Final = re.compile(r"(?:^|,)size=(\d+)([KMGT]?)(?:,|$)")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A template that a machine can be cloned from."""

    vmid: int
    node: str
    is_shared: bool  # all its disks are on storages that every node has
    disk: str  # the drive that gets the size of the shape's disk; empty when it has none
    size: int  # of that drive, in bytes; 0: unknown


class Templates:
    """Finds templates, and caches their configurations."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[int, tuple[float, Mapping[str, Any]]] = {}

    def forget(self) -> None:
        """Clears the cache: somebody may have replaced a template."""
        with self._lock:
            self._known.clear()

    def find(self, wanted: int | str, disk: str, inventory: Inventory) -> Sequence[Source]:
        """Returns the matching templates on online nodes; raises when there is no such template."""
        found = [
            guest
            for guest in inventory.guests.values()
            if not guest.is_container and (str(guest.vmid) == str(wanted) or guest.name == wanted)
        ]
        if not found:
            raise InvalidArgumentError(
                f"machine.template: there is no template {wanted!r}, or the user may not see it (VM.Audit)"
            )
        templates = [guest for guest in found if guest.is_template or guest.status == "unknown"]
        if not templates:
            raise InvalidArgumentError(f"machine.template: {wanted!r} is a machine, and no template")
        online = [guest for guest in templates if inventory.node_of(guest.node) == "online"]
        return [self._source(guest.vmid, guest.node, disk, inventory) for guest in online]

    def _source(self, vmid: int, node: str, disk: str, inventory: Inventory) -> Source:
        config = self._config(vmid, node)
        if not config.get("template"):
            raise InvalidArgumentError(f"machine.template: {vmid} is a machine, and no template")
        chosen = disk or boot_disk(config)
        if disk and disk not in config:
            raise InvalidArgumentError(f"machine.disk: the template {vmid} has no {disk}")
        storages = [volume.partition(":")[0] for volume in drives(config).values() if ":" in volume]
        return Source(
            vmid=vmid,
            node=node,
            is_shared=all(map(inventory.is_shared, storages)),
            disk=chosen,
            size=size_of(str(config.get(chosen, ""))),
        )

    def _config(self, vmid: int, node: str) -> Mapping[str, Any]:
        with self._lock:
            until, known = self._known.get(vmid, (0.0, {}))
        if time.monotonic() < until:
            return known
        config = self._api.config(node, vmid, f"template {vmid}")
        with self._lock:
            self._known[vmid] = (time.monotonic() + _LASTS, config)
        return config


def drives(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the volumes of a machine by drive, with EFI and TPM; also values that are no volume, such as ``none``."""
    return {
        key: str(value).partition(",")[0].removeprefix("file=")
        for key, value in config.items()
        if DRIVE.fullmatch(key) or key in ("efidisk0", "tpmstate0")
    }


def boot_disk(config: Mapping[str, Any]) -> str:
    """Returns the boot drive of a machine: the first disk of its boot order, else its first disk."""
    disks = [key for key in sorted(drives(config)) if DRIVE.fullmatch(key) and "media=cdrom" not in str(config[key])]
    order = re.search(r"order=([^,\s]+)", str(config.get("boot", "")))
    wanted = order[1].split(";") if order else [str(config.get("bootdisk", ""))]
    return next((key for key in wanted if key in disks), disks[0] if disks else "")


def size_of(drive: str) -> int:
    """Returns the size of a drive in bytes, from its configuration; 0 when that has none."""
    found = _SIZE.search(drive)
    return int(found[1]) * _UNITS[found[2]] if found else 0


# -- nodes -------------------------------------------------------------------------------------------------------------
# The used memory of a node is that of the machines that run on it, or what it measures, if that is more. Machines that
# were placed a moment ago are in no list yet, or not with their memory. So they are remembered until they are.

_REMEMBERED: Final = 300.0  # seconds, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The node of a new machine, and its template."""

    node: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reservation:
    node: str
    cpus: int
    memory: int
    until: float


class Placement:
    """Chooses nodes, and reserves their room. Thread-safe."""

    def __init__(self, options: ProxmoxOptions) -> None:
        self._options = options
        self._reserve = int(amount(options.memory_reserve).value)
        self._lock = threading.Lock()
        self._reserved: dict[int, _Reservation] = {}

    def choose(
        self, vmid: int, shape: ShapeOptions, settings: MachineSettings, sources: Sequence[Source], inventory: Inventory
    ) -> Place:
        """Reserves a place for the machine; raises OutOfStockError when it fits nowhere."""
        places = self._reachable(settings, sources, inventory)
        with self._lock:
            self._drop_old(inventory)
            best: tuple[int, Place] | None = None
            reasons = []
            for place in places:
                node = inventory.nodes[place.node]
                left, why = self._left(node, shape, settings, inventory)
                if why:
                    reasons.append(f"{node.name}: {why}")
                elif best is None or left > best[0]:
                    best = left, place
            if best is None:
                raise OutOfStockError(f"no node has room: {'; '.join(reasons)}")
            until = time.monotonic() + _REMEMBERED
            self._reserved[vmid] = _Reservation(
                node=best[1].node, cpus=shape.cpu, memory=shape.memory_bytes, until=until
            )
            return best[1]

    def release(self, vmid: int) -> None:
        """Ends a reservation: the machine was not created, or it is gone."""
        with self._lock:
            self._reserved.pop(vmid, None)

    def _reachable(self, settings: MachineSettings, sources: Sequence[Source], inventory: Inventory) -> Sequence[Place]:
        """Returns the nodes that a template can be cloned to. A template on the node itself is preferred."""
        wanted = self._options.nodes or sorted(inventory.nodes)
        if unknown := [node for node in wanted if node not in inventory.nodes]:
            raise InvalidArgumentError(f"nodes: the cluster has no node {unknown[0]!r}")
        storage = self._storage(settings)
        is_mobile = not storage or inventory.is_shared(storage)
        places = []
        for node in wanted:
            if not inventory.nodes[node].is_online or inventory.nodes[node].is_in_maintenance:
                continue
            here = [source for source in sources if source.node == node]
            shared = [source for source in sources if source.is_shared and is_mobile]
            places += [Place(node=node, source=source) for source in (here or shared)[:1]]
        if not places:
            if sources:
                raise InvalidArgumentError(
                    "no node that machines may be made on has the template, and it is not on shared storage: look at "
                    "nodes, or make a template of the same name on each of them"
                )
            raise UnavailableError("the nodes with the template are all offline; nothing was done")
        return places

    def _left(
        self, node: Node, shape: ShapeOptions, settings: MachineSettings, inventory: Inventory
    ) -> tuple[int, str]:
        """Returns the memory that would be left there, or why the machine does not fit."""
        if node.memory is None or node.cpus is None:
            raise PermissionDeniedError(
                f"the user may not see how much memory {node.name} has; give it Sys.Audit on /nodes, or PVEAuditor"
            )
        reserved = [one for one in self._reserved.values() if one.node == node.name]
        running = [
            guest
            for guest in inventory.guests.values()
            if guest.node == node.name and guest.status == "running" and guest.vmid not in self._reserved
        ]
        memory = sum(one.memory for one in reserved)
        used = max(node.used + memory, sum(guest.memory for guest in running) + memory)
        left = node.memory - self._reserve - used - shape.memory_bytes
        if left < 0:
            return 0, f"{-left // MEBIBYTE} MiB of memory are missing"
        cpus = sum(guest.cpus for guest in running) + sum(one.cpus for one in reserved) + shape.cpu
        if self._options.cpu_ratio and cpus > node.cpus * self._options.cpu_ratio:
            return 0, f"it would give away {cpus} CPUs and has {node.cpus}"
        return left, self._full_storage(node, shape, settings, inventory)

    def _full_storage(self, node: Node, shape: ShapeOptions, settings: MachineSettings, inventory: Inventory) -> str:
        storage = self._storage(settings)
        seen = inventory.storages.get((node.name, storage))
        if seen is not None and seen.free is not None and seen.free < shape.disk_bytes:
            return f"{storage} has no room"
        return ""

    def _storage(self, settings: MachineSettings) -> str:
        return settings.storage or (self._options.storage if settings.full_clone else "")

    def _drop_old(self, inventory: Inventory) -> None:
        now = time.monotonic()
        for vmid, one in list(self._reserved.items()):
            guest = inventory.guests.get(vmid)
            if now > one.until or (guest is not None and guest.status == "running"):
                del self._reserved[vmid]
