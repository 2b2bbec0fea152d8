"""On which node a machine is made: where it fits, and where the most memory is left.

What a node has given away is the memory of the machines that run on it, or what it measures, if that is more. Machines
that were placed a moment ago are in no list yet, or not with their memory, so they are remembered until they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.drivers.proxmox.inventory import Inventory, Node
from cloudgraft.drivers.proxmox.options import MEBIBYTE, ProxmoxOptions, ShapeOptions
from cloudgraft.drivers.proxmox.settings import MachineSettings
from cloudgraft.drivers.proxmox.templates import Source
from cloudgraft.sdk.errors import InvalidArgumentError, OutOfStockError, PermissionDeniedError, UnavailableError
from cloudgraft.sdk.quantity import amount

__all__ = ["Place", "Placement"]

_REMEMBERED: Final = 300.0  # seconds, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a machine is made, and from which template."""

    node: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    node: str
    cpus: int
    memory: int
    until: float


class Placement:
    """What was promised to whom. Calls may be made by several threads at once."""

    def __init__(self, options: ProxmoxOptions) -> None:
        self._options = options
        self._reserve = int(amount(options.memory_reserve).value)
        self._lock = threading.Lock()
        self._promised: dict[int, _Promise] = {}

    def choose(
        self, vmid: int, shape: ShapeOptions, settings: MachineSettings, sources: Sequence[Source], inventory: Inventory
    ) -> Place:
        """A place, which is promised to the machine; raises OutOfStockError when it fits nowhere."""
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
            self._promised[vmid] = _Promise(node=best[1].node, cpus=shape.cpu, memory=shape.memory_bytes, until=until)
            return best[1]

    def release(self, vmid: int) -> None:
        """The machine is not made, or it is gone."""
        with self._lock:
            self._promised.pop(vmid, None)

    def _reachable(self, settings: MachineSettings, sources: Sequence[Source], inventory: Inventory) -> Sequence[Place]:
        """The nodes that a template can be cloned to. One on the node itself is better than one elsewhere."""
        wanted = self._options.nodes or sorted(inventory.nodes)
        if unknown := [node for node in wanted if node not in inventory.nodes]:
            raise InvalidArgumentError(f"nodes: the cluster has no node {unknown[0]!r}")
        storage = settings.storage or (self._options.storage if settings.full_clone else "")
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
        """The memory that would be left there; or why it does not fit."""
        if node.memory is None or node.cpus is None:
            raise PermissionDeniedError(
                f"the user may not see how much memory {node.name} has; give it Sys.Audit on /nodes, or PVEAuditor"
            )
        promised = [promise for promise in self._promised.values() if promise.node == node.name]
        running = [
            guest
            for guest in inventory.guests.values()
            if guest.node == node.name and guest.status == "running" and guest.vmid not in self._promised
        ]
        memory = sum(promise.memory for promise in promised)
        used = max(node.used + memory, sum(guest.memory for guest in running) + memory)
        left = node.memory - self._reserve - used - shape.memory_bytes
        if left < 0:
            return 0, f"{-left // MEBIBYTE} MiB of memory are missing"
        cpus = sum(guest.cpus for guest in running) + sum(promise.cpus for promise in promised) + shape.cpu
        if self._options.cpu_ratio and cpus > node.cpus * self._options.cpu_ratio:
            return 0, f"it would give away {cpus} CPUs and has {node.cpus}"
        return left, self._full_storage(node, shape, settings, inventory)

    def _full_storage(self, node: Node, shape: ShapeOptions, settings: MachineSettings, inventory: Inventory) -> str:
        storage = settings.storage or (self._options.storage if settings.full_clone else "")
        seen = inventory.storages.get((node.name, storage))
        if seen is not None and seen.free is not None and seen.free < shape.disk_bytes:
            return f"{storage} has no room"
        return ""

    def _drop_old(self, inventory: Inventory) -> None:
        now = time.monotonic()
        for vmid, promise in list(self._promised.items()):
            guest = inventory.guests.get(vmid)
            if now > promise.until or (guest is not None and guest.status == "running"):
                del self._promised[vmid]
