"""What there is in a cluster: machines, nodes and storages, all from one call.

The list of machines and their tags and locks is as every node knows it at once. Names and states are what each node
tells every few seconds: a new machine has neither yet, and one whose node is away loses both after some minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.marks import Marks, from_tags
from cloudgraft.sdk.errors import UnavailableError

__all__ = ["Guest", "Inventory", "Node", "Storage", "read_inventory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A virtual machine, a template, or a container."""

    vmid: int
    node: str
    name: str  # empty: not known yet, or it has none
    status: str  # running, stopped, or unknown
    lock: str
    pool: str
    marks: Marks | None
    is_template: bool
    is_container: bool
    cpus: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host. What it has is None when we may not see it."""

    name: str
    is_online: bool
    is_in_maintenance: bool
    cpus: int | None
    memory: int | None
    used: int  # of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A storage, as one node has it."""

    is_shared: bool
    free: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that we may see."""

    guests: Mapping[int, Guest]
    nodes: Mapping[str, Node]
    storages: Mapping[tuple[str, str], Storage]  # by node and name

    def is_shared(self, storage: str) -> bool:
        """Whether all nodes have the same in it, as far as we may see it."""
        return any(one.is_shared for (_, name), one in self.storages.items() if name == storage)

    def node_of(self, name: str) -> str:
        """How a node is, for a message."""
        node = self.nodes.get(name)
        return "not known" if node is None else "online" if node.is_online else "offline"


def read_inventory(api: Api, what: str) -> Inventory:
    """Asks the cluster; raises UnavailableError rather than leave out what was not understood."""
    entries = api.get("cluster/resources", what)
    try:
        kinds: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            kinds.setdefault(entry["type"], []).append(entry)
        guests = [_guest(entry) for entry in (*kinds.get("qemu", ()), *kinds.get("lxc", ()))]
        return Inventory(
            guests={guest.vmid: guest for guest in guests},
            nodes={entry["node"]: _node(entry) for entry in kinds.get("node", ())},
            storages={(entry["node"], entry["storage"]): _storage(entry) for entry in kinds.get("storage", ())},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnavailableError(f"{what}: the list makes no sense: {type(error).__name__} {error}") from None


def _guest(entry: Mapping[str, Any]) -> Guest:
    marks = from_tags(str(entry.get("tags") or ""))
    return Guest(
        vmid=int(entry["vmid"]),
        node=str(entry["node"]),
        name="" if entry.get("name") == f"VM {entry['vmid']}" else str(entry.get("name") or ""),
        status=str(entry.get("status") or "unknown"),
        lock=str(entry.get("lock") or ""),
        pool=str(entry.get("pool") or ""),
        marks=marks if marks is not None and marks.is_of(int(entry["vmid"])) else None,
        is_template=bool(int(entry.get("template") or 0)),
        is_container=entry["type"] == "lxc",
        cpus=int(entry.get("maxcpu") or 0),
        memory=int(entry.get("maxmem") or 0),
    )


def _node(entry: Mapping[str, Any]) -> Node:
    return Node(
        name=str(entry["node"]),
        is_online=entry.get("status") == "online",
        is_in_maintenance=entry.get("hastate") == "maintenance",
        cpus=int(entry["maxcpu"]) if entry.get("maxcpu") else None,
        memory=int(entry["maxmem"]) if entry.get("maxmem") else None,
        used=int(entry.get("mem") or 0),
    )


def _storage(entry: Mapping[str, Any]) -> Storage:
    is_known = entry.get("status") == "available" and entry.get("maxdisk")
    return Storage(
        is_shared=bool(int(entry.get("shared") or 0)),
        free=int(entry["maxdisk"]) - int(entry.get("disk") or 0) if is_known else None,
    )
