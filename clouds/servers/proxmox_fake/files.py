"""ISO images on storages: upload and removal."""

from __future__ import annotations

import re
from typing import Any

from clouds.servers.proxmox_fake import schema
from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.data import Storage
from clouds.servers.proxmox_fake.refusals import RefusedError, TaskError

__all__ = ["Files"]

Json = dict[str, Any]
_FILES = {"dir", "nfs", "cifs", "cephfs"}  # kinds of storages that have a path


class Files:
    """Changes the files of a cluster, for one user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def upload(self, user: str, node: str, storage: str, given: dict[str, str], content: bytes) -> str:
        """Stores an image, over one of the same name."""
        cluster = self._cluster
        cluster.require(f"/storage/{storage}", "Datastore.AllocateTemplate")
        schema.check("upload", given)
        place = self._storage(node, storage)
        if place.kind not in _FILES:
            raise RefusedError(500, f"can't upload to storage type '{place.kind}'")
        name = re.sub(r"[^a-zA-Z0-9_.-]", "_", re.sub(r"^.*[/\\]", "", given["filename"]))
        if not re.search(r"\.(iso|img)$", name, re.IGNORECASE):
            raise RefusedError(400, "Parameter verification failed.", {"filename": "wrong file extension"})
        if given["content"] not in place.content.split(","):
            raise RefusedError(500, f"storage '{storage}' does not support '{given['content']}' content")

        def act() -> None:
            if b"CD001" not in content[: 20 * 2048]:
                raise TaskError("not an iso image")
            place.files["" if place.is_shared else node, name] = content

        return cluster.tasks.begin(node, "imgcopy", "", user, cluster.task_time, act)

    def free(self, user: str, node: str, storage: str, volume: str, given: dict[str, str]) -> str:
        """Removes a volume; one that is not there is only warned of."""
        cluster = self._cluster
        cluster.at(node)
        schema.check("free", given)
        place = self._storage(node, storage)
        cluster.require(f"/storage/{storage}", "Datastore.Allocate")
        name = volume.removeprefix(f"{storage}:").removeprefix("iso/")

        def act() -> None:
            place.files.pop(("" if place.is_shared else node, name), None)

        return cluster.tasks.begin(node, "imgdel", storage, user, cluster.task_time, act)

    def storages(self, node: str) -> list[Json]:
        """The storages of a node, as it sees them."""
        return [
            {
                "storage": name,
                "type": place.kind,
                "content": place.content,
                "shared": int(place.is_shared),
                "active": 1,
                "enabled": 1,
                "total": place.size,
                "used": place.used(node),
                "avail": place.size - place.used(node),
                "used_fraction": place.used(node) / place.size,
            }
            for name, place in self._cluster.storages.items()
            if self._cluster.may(f"/storage/{name}", "Datastore.Audit")
        ]

    def content(self, node: str, storage: str) -> list[Json]:
        """The images of a storage."""
        place = self._storage(node, storage)
        return [
            {"volid": f"{storage}:iso/{name}", "content": "iso", "format": "iso", "size": len(content), "ctime": 0}
            for (where, name), content in place.files.items()
            if where in ("", node)
        ]

    def _storage(self, node: str, name: str) -> Storage:
        self._cluster.at(node)
        if name not in self._cluster.storages:
            raise RefusedError(500, f"storage '{name}' does not exist")
        return self._cluster.storages[name]
