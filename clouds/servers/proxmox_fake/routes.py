"""Which call is meant by a path."""

from __future__ import annotations

from typing import Any

from clouds.servers.proxmox_fake.changes import Changes
from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.files import Files
from clouds.servers.proxmox_fake.refusals import RefusedError

__all__ = ["Routes"]

_VERSION = {"version": "9.2.1", "release": "9.2", "repoid": "0000000000000000"}


class Routes:
    """The calls of the API that the fake knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._changes = Changes(cluster)
        self._files = Files(cluster)

    def serve(self, user: str, method: str, path: str, given: dict[str, str], content: bytes) -> Any:
        """What a call gives; raises RefusedError."""
        parts = path.strip("/").split("/")
        if method == "GET":
            return self._read(parts, given)
        match method, *parts:
            case "POST", "nodes", node, "storage", storage, "upload":
                return self._files.upload(user, node, storage, given, content)
            case "DELETE", "nodes", node, "storage", storage, "content", *volume:
                return self._files.free(user, node, storage, "/".join(volume), given)
            case "POST", "nodes", node, "qemu", vmid, "status", verb:
                return self._switched(user, node, vmid, verb, given)
            case _, "nodes", node, "qemu", vmid, *rest:
                return self._changed(method, user, node, vmid, rest, given)
        raise _unknown(method, path)

    def _switched(self, user: str, node: str, vmid: str, verb: str, given: dict[str, str]) -> str:
        if verb == "start":
            return self._changes.start(user, node, vmid, given)
        if verb in ("stop", "shutdown"):
            return self._changes.stop(user, node, vmid, given)
        raise _unknown("POST", f"status/{verb}")

    def _changed(
        self, method: str, user: str, node: str, vmid: str, rest: list[str], given: dict[str, str]
    ) -> str | None:
        match method, *rest:
            case "POST", "clone":
                return self._changes.clone(user, node, vmid, given)
            case "POST", "config":
                return self._changes.setup(user, node, vmid, given)
            case "PUT", "config":
                self._changes.setup_at_once(node, vmid, given)
                return None
            case "PUT", "resize":
                return self._changes.resize(user, node, vmid, given)
            case ("DELETE",):
                return self._changes.destroy(user, node, vmid, given)
        raise _unknown(method, f"/nodes/{node}/qemu/{vmid}/{'/'.join(rest)}")

    def _read(self, parts: list[str], given: dict[str, str]) -> Any:  # noqa: PLR0911 - one for each call
        cluster = self._cluster
        match parts:
            case ["version"]:
                return _VERSION
            case ["cluster", "resources"]:
                return cluster.resources(given.get("type", ""))
            case ["access", "permissions"]:
                return cluster.rights()
            case ["cluster", "nextid"]:
                return next(str(number) for number in range(100, 1_000_000) if number not in cluster.guests)
            case ["cluster", "status"]:
                return [{"type": "cluster", "id": "cluster", "name": "fake", "nodes": 3, "quorate": 1, "version": 3}]
            case ["nodes"]:
                return cluster.resources("node")
            case ["nodes", node, *rest]:
                return self._read_node(node, rest, given)
        raise _unknown("GET", "/".join(parts))

    def _read_node(  # noqa: PLR0911 - one for each call
        self, node: str, rest: list[str], given: dict[str, str]
    ) -> Any:
        cluster = self._cluster
        cluster.at(node)
        match rest:
            case ["status"]:
                return {"pveversion": f"pve-manager/{_VERSION['version']}", "uptime": 86_400}
            case ["version"]:
                return _VERSION
            case ["qemu"]:
                return [cluster.current(node, str(vmid)) for vmid, one in cluster.guests.items() if one.node == node]
            case ["qemu", vmid, "config"]:
                return cluster.config(node, vmid)
            case ["qemu", vmid, "status", "current"]:
                return cluster.current(node, vmid)
            case ["storage"]:
                return self._files.storages(node)
            case ["storage", name, "status"]:
                return next((one for one in self._files.storages(node) if one["storage"] == name), None)
            case ["storage", name, "content"]:
                return self._files.content(node, name)
            case ["tasks", upid, "status"]:
                return cluster.tasks.status(node, upid)
            case ["tasks", _, "log"]:
                return [{"n": 1, "t": "TASK OK"}]
        raise _unknown("GET", f"/nodes/{node}/{'/'.join(rest)}")


def _unknown(method: str, path: str) -> RefusedError:
    return RefusedError(501, f"Method '{method} {path}' not implemented")
