"""Reports each peer as Liqo does: as a ForeignCluster, made as soon as anything about the peer exists.

As Liqo 1.2 does, it asks the peer's API with the credentials that were there when it first looked, and looks again only
when an object about the peer changes, or a label of the ForeignCluster. A Secret is no such object: one that goes, or
that is replaced, is not seen, and when what it held is revoked the peer seems dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cloudgraft.demo.fake_liqo.cluster import Cluster
from cloudgraft.demo.fake_liqo.words import (
    CHECKER_FINALIZER,
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
from cloudgraft.kube.objects import CustomObject

_ABOUT_PEERS = (CONFIGURATIONS, CONNECTIONS, IDENTITIES, VIRTUAL_NODES, NODES)


class ForeignClusters:
    """Plays the controller of foreign clusters at a consumer."""

    def __init__(self, cluster: Cluster, is_reachable: Callable[[str], bool]) -> None:
        self._cluster = cluster
        self._reaches = is_reachable
        self._seen: dict[str, object] = {}  # the objects about a peer at the last check
        self._known: dict[str, CustomObject] = {}  # the credentials that a peer is asked with

    def is_reachable(self, peer: str) -> bool:
        """Whether the peer's API answers, as far as Liqo knows with its credentials."""
        known = self._known.get(peer)
        return self._reaches(peer) and (known is None or _data(known) == _data(self._secret(peer)))

    async def turn(self) -> None:
        """Creates and updates ForeignClusters. One whose peering has ended stays, with an unknown role."""
        peers = {
            each.labels[REMOTE] for kind in _ABOUT_PEERS for each in self._cluster.all(kind) if REMOTE in each.labels
        }
        for peer in sorted(peers):
            if self._cluster.find(FOREIGN_CLUSTERS, peer) is None:
                await self._cluster.create(FOREIGN_CLUSTERS, _manifest(peer))
        for found in self._cluster.all(FOREIGN_CLUSTERS):
            self._look(found)
            await self._cluster.hold(FOREIGN_CLUSTERS, found, CHECKER_FINALIZER, wanted=found.name in self._known)
            await self._cluster.report(FOREIGN_CLUSTERS, found, self._status(found))

    def _look(self, found: CustomObject) -> None:
        """Reads the credentials; those in use stay until Liqo notices that there are none."""
        peer = found.name
        versions = sorted(each.version for kind in _ABOUT_PEERS for each in self._cluster.all(kind, remote=peer))
        now = (found.uid, tuple(versions), tuple(sorted(found.labels.items())))
        if self._seen.get(peer) == now and not found.deleting:
            return
        self._seen[peer] = now
        secret = self._secret(peer)
        if secret is None or found.deleting:
            self._known.pop(peer, None)
        else:
            self._known.setdefault(peer, secret)

    def _secret(self, peer: str) -> CustomObject | None:
        return next(iter(self._cluster.all(IDENTITY_SECRETS, remote=peer)), None)

    def _status(self, found: CustomObject) -> Mapping[str, Any]:
        peer = found.name
        secret = self._known.get(peer)
        virtual = self._cluster.all(VIRTUAL_NODES, remote=peer)
        connections = self._cluster.all(CONNECTIONS, remote=peer)
        networking: list[tuple[str, str]] = []
        if connections:
            is_up = any(status_of(each).get("value") == "Connected" for each in connections)
            networking.append(("NetworkConnectionStatus", "Established" if is_up else "Pending"))
        status: dict[str, Any] = {
            "role": "Provider" if secret or virtual else "Unknown",
            "observedGeneration": 1,
            "apiServerUrl": f"https://{peer}.invalid" if secret else None,
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
        api = "Established" if self.is_reachable(peer) else "Error"
        old = status_of(found).get("conditions") or ()
        return status | {"conditions": _conditions(old, [("APIServerStatus", api)] if secret else [])}


def _data(secret: CustomObject | None) -> object:
    return None if secret is None else secret.content.get("data")


def _module(found: CustomObject, name: str, has: object, wanted: list[tuple[str, str]]) -> Mapping[str, Any]:
    old = (status_of(found).get("modules") or {}).get(name, {}).get("conditions") or ()
    return {"enabled": bool(has), "conditions": _conditions(old, wanted)}


def _conditions(old: Any, wanted: list[tuple[str, str]]) -> list[Mapping[str, str]]:
    since = {(each["type"], each["status"]): each["lastTransitionTime"] for each in old}
    return [
        {"type": kind, "status": status, "lastTransitionTime": since.get((kind, status), now_text())}
        for kind, status in wanted
    ]


def _manifest(peer: str) -> Mapping[str, object]:
    return {
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {"name": peer, "labels": {REMOTE: peer}},
        "spec": {"clusterID": peer},
    }
