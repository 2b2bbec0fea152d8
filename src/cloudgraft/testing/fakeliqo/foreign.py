"""What Liqo tells of each peer: a ForeignCluster, made as soon as anything about the peer is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cloudgraft.kube.objects import CustomObject
from cloudgraft.testing.fakeliqo.cluster import Cluster
from cloudgraft.testing.fakeliqo.words import (
    CONFIGURATIONS,
    CONNECTIONS,
    FOREIGN_CLUSTERS,
    IDENTITIES,
    IDENTITY_SECRETS,
    NODES,
    REMOTE,
    REMOTE_NAMESPACE,
    VIRTUAL_NODES,
    now_text,
    status_of,
)

__all__ = ["ForeignClusters"]

_TELLING = (CONFIGURATIONS, CONNECTIONS, IDENTITIES, VIRTUAL_NODES, NODES)


class ForeignClusters:
    """Plays the controller of foreign clusters at a consumer."""

    def __init__(self, cluster: Cluster, is_reachable: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._is_reachable = is_reachable

    async def turn(self) -> None:
        """Makes and reports what is due. One whose peering is over stays, with an unknown role."""
        told = {each.labels[REMOTE] for kind in _TELLING for each in self._cluster.all(kind) if REMOTE in each.labels}
        for peer in sorted(told):
            if self._cluster.find(FOREIGN_CLUSTERS, peer) is None:
                await self._cluster.create(FOREIGN_CLUSTERS, _manifest(peer))
        for found in self._cluster.all(FOREIGN_CLUSTERS):
            await self._cluster.report(FOREIGN_CLUSTERS, found, self._status(found))

    def _status(self, found: CustomObject) -> Mapping[str, Any]:
        peer = found.name
        secret = next(iter(self._cluster.all(IDENTITY_SECRETS, remote=peer)), None)
        virtual = self._cluster.all(VIRTUAL_NODES, remote=peer)
        connections = self._cluster.all(CONNECTIONS, remote=peer)
        networking: list[tuple[str, str]] = []
        if connections:
            is_up = any(status_of(each).get("value") == "Connected" for each in connections)
            networking.append(("NetworkConnectionStatus", "Established" if is_up else "Pending"))
        status: dict[str, Any] = {
            "role": "Provider" if secret or virtual else "Unknown",
            "observedGeneration": 1,
            "tenantNamespace": {"local": secret.namespace, "remote": secret.annotations.get(REMOTE_NAMESPACE, "")}
            if secret
            else {},
            "modules": {
                "networking": _module(found, "networking", self._cluster.all(CONFIGURATIONS, remote=peer), networking),
                "authentication": _module(
                    found, "authentication", secret, [("AuthIdentityControlPlaneStatus", "Ready")] if secret else []
                ),
                "offloading": _module(
                    found, "offloading", virtual, [("OffloadingVirtualNodeStatus", "Ready")] if virtual else []
                ),
            },
        }
        api = "Established" if self._is_reachable(peer) else "Error"
        old = status_of(found).get("conditions") or ()
        return status | {"conditions": _conditions(old, [("APIServerStatus", api)] if secret else [])}


def _module(found: CustomObject, name: str, has: object, told: list[tuple[str, str]]) -> Mapping[str, Any]:
    old = (status_of(found).get("modules") or {}).get(name, {}).get("conditions") or ()
    return {"enabled": bool(has), "conditions": _conditions(old, told)}


def _conditions(old: Any, told: list[tuple[str, str]]) -> list[Mapping[str, str]]:
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in old}
    return [
        {"type": kind, "status": status, "lastTransitionTime": since.get((kind, status), now_text())}
        for kind, status in told
    ]


def _manifest(peer: str) -> Mapping[str, object]:
    return {
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {"name": peer, "labels": {REMOTE: peer}},
        "spec": {"clusterID": peer},
    }
