"""What the fake begins with: three nodes, their storages, and templates on local and on shared storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["GIB", "LOCAL", "SHARED", "Guest", "Node", "Storage", "nodes", "storages", "templates"]

GIB: Final = 1 << 30
LOCAL: Final = "ubuntu-24.04"  # a template of this name is on each node, on its own storage
SHARED: Final = 9100  # the VMID of a template whose disk is on Ceph


@dataclass(slots=True, kw_only=True)
class Node:
    """A host."""

    cpus: int = 16
    memory: int = 64 * GIB
    is_online: bool = True


@dataclass(slots=True, kw_only=True)
class Storage:
    """A storage. What is not shared is there once for each node."""

    kind: str
    content: str
    is_shared: bool = False
    size: int = 1000 * GIB
    volumes: dict[tuple[str, str], int] = field(default_factory=dict)  # sizes by node (empty: shared) and name
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)  # ISO images, likewise

    def used(self, node: str) -> int:
        """How much is taken on one node."""
        return sum(size for (where, _), size in self.volumes.items() if where in ("", node))


@dataclass(slots=True, kw_only=True)
class Guest:
    """A machine or a template."""

    node: str
    config: dict[str, str]
    is_running: bool = False
    kind: str = "qemu"
    pool: str = ""
    news: dict[str, Any] | None = None  # what its node has told of it last


def nodes() -> dict[str, Node]:
    """Three of one kind."""
    return {f"pve{number}": Node() for number in (1, 2, 3)}


def storages() -> dict[str, Storage]:
    """As an installation has them, and Ceph."""
    return {
        "local": Storage(kind="dir", content="iso,vztmpl,backup"),
        "local-lvm": Storage(kind="lvmthin", content="images,rootdir"),
        "ceph": Storage(kind="rbd", content="images,rootdir", is_shared=True),
        "cephfs": Storage(kind="cephfs", content="iso,vztmpl", is_shared=True),
    }


def templates() -> dict[int, Guest]:
    """One of a name on each node, with Proxmox's own cloud-init drive; and one on shared storage, without."""
    found = {9000 + number: _template(f"pve{number}", LOCAL, 9000 + number, "local-lvm") for number in (1, 2, 3)}
    found[SHARED] = _template("pve1", "debian-13", SHARED, "ceph")
    del found[SHARED].config["ide2"]
    return found


def _template(node: str, name: str, vmid: int, storage: str) -> Guest:
    return Guest(
        node=node,
        config={
            "name": name,
            "template": "1",
            "memory": "2048",
            "cores": "2",
            "boot": "order=scsi0;net0",
            "scsihw": "virtio-scsi-single",
            "scsi0": f"{storage}:base-{vmid}-disk-0,size=10G",
            "ide2": f"{storage}:vm-{vmid}-cloudinit,media=cdrom",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
            "smbios1": "uuid=6c3fa683-bef9-4425-b413-eaa45a9d6191,manufacturer=QWNtZQ==",
            "ostype": "l26",
        },
    )
