"""Reports each peer as Liqo does: a ForeignCluster, and the networks between two clusters."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from cloudgraft.demo.fake_liqo.cluster import Cluster
from cloudgraft.demo.fake_liqo.script import Pace, Script
from cloudgraft.demo.fake_liqo.words import (
    CHECKER_FINALIZER,
    CONFIGURATIONS,
    CONNECTIONS,
    FOREIGN_CLUSTERS,
    GATEWAY_CLIENTS,
    GATEWAY_SERVERS,
    IDENTITIES,
    IDENTITY_SECRETS,
    NODES,
    PUBLIC_KEYS,
    REMOTE,
    REMOTE_NAMESPACE,
    SECRETS,
    VIRTUAL_NODES,
    now_text,
    owner,
    spec_of,
    status_of,
    with_condition,
)
from cloudgraft.kube.objects import CustomObject, Kind

# -- foreign clusters --------------------------------------------------------------------------------------------------
# Liqo reports each peer as a ForeignCluster, made as soon as anything about the peer exists.
# As Liqo 1.2 does, it asks the peer's API with the credentials that were there when it first looked, and looks again
# only when an object about the peer changes, or a label of the ForeignCluster. A Secret is no such object: one that
# goes, or that is replaced, is not seen, and when what it held is revoked the peer seems dead.


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


# -- networks ----------------------------------------------------------------------------------------------------------
# Objects only: no packet ever flows.


NETWORK_KINDS: Final = (CONFIGURATIONS, GATEWAY_SERVERS, GATEWAY_CLIENTS, PUBLIC_KEYS, CONNECTIONS)
_GATEWAYS: Final = ((GATEWAY_SERVERS, "Server"), (GATEWAY_CLIENTS, "Client"))
_GATEWAY_RESOURCE: Final = "networking.liqo.io/gateway-resource"
_ADDRESS: Final = "192.0.2.1"  # of every gateway; reserved for documents


class Network:
    """Plays the network controllers of one cluster, and its gateways."""

    def __init__(self, cluster: Cluster, script: Script, pace: Pace) -> None:
        self._cluster = cluster
        self._script = script
        self._pace = pace

    async def turn(self) -> None:
        """Does what is due."""
        for found in self._cluster.all(CONFIGURATIONS):
            await self._configure(found)
        for kind, role in _GATEWAYS:
            for gateway in self._cluster.all(kind):
                await self._open(kind, gateway)
                await self._connect(gateway, role)
        await self._disconnect()

    async def _configure(self, found: CustomObject) -> None:
        conditions = with_condition(found, "NetworkCIDRsConfigured", "True", "Configured", "the ranges are remapped")
        remote = spec_of(found).get("remote") or {}
        await self._cluster.report(CONFIGURATIONS, found, {"remote": remote, "conditions": conditions})

    async def _open(self, kind: Kind[CustomObject], gateway: CustomObject) -> None:
        spec = spec_of(gateway)
        secret = (spec.get("secretRef") or {}).get("name") or f"gw-{gateway.name}"
        if not spec.get("secretRef") and not status_of(gateway).get("secretRef"):
            await self._cluster.create(SECRETS, _keys(secret, gateway), gateway.namespace)
        status: dict[str, Any] = {"secretRef": {"name": secret, "namespace": gateway.namespace}}
        if kind is GATEWAY_SERVERS:
            asked = spec.get("endpoint") or {}
            port = asked.get("nodePort") or asked.get("port") or 51840
            address = asked.get("loadBalancerIP") or _ADDRESS
            status["endpoint"] = {"addresses": [address], "port": port, "protocol": "UDP"}
        await self._cluster.report(kind, gateway, status)

    async def _connect(self, gateway: CustomObject, role: str) -> None:
        """There is a connection once keys are exchanged, and it is up when the ranges are known too."""
        remote = gateway.labels.get(REMOTE, "")
        if not self._cluster.all(PUBLIC_KEYS, remote=remote):
            return
        found = self._cluster.find(CONNECTIONS, gateway.name, gateway.namespace)
        if found is None:
            await self._cluster.create(CONNECTIONS, _connection(gateway, role), gateway.namespace)
            return
        rules = self._script.rules(remote)
        is_up = bool(self._cluster.all(CONFIGURATIONS, remote=remote)) and not rules.dead
        if is_up and self._pace.due((found.uid, "connection"), rules.delay("connection")):
            await self._cluster.report(CONNECTIONS, found, {"value": "Connected", "latency": {"value": "1ms"}})
        else:
            value = "Error" if status_of(found).get("value") in {"Connected", "Error"} else "Connecting"
            await self._cluster.report(CONNECTIONS, found, {"value": value})

    async def _disconnect(self) -> None:
        present = {each.key for kind, _ in _GATEWAYS for each in self._cluster.all(kind)}
        for found in self._cluster.all(CONNECTIONS):
            if found.key not in present:
                await self._cluster.delete(CONNECTIONS, found)


def _connection(gateway: CustomObject, role: str) -> dict[str, object]:
    kind = f"Gateway{role}"
    reference = {"kind": kind, "name": gateway.name, "namespace": gateway.namespace}
    return {
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Connection",
        "metadata": {
            "name": gateway.name,
            "labels": {REMOTE: gateway.labels.get(REMOTE, "")},
            "ownerReferences": [owner(gateway, kind, "networking.liqo.io/v1beta1")],
        },
        "spec": {"type": role, "gatewayRef": reference},
    }


def _keys(name: str, gateway: CustomObject) -> dict[str, object]:
    keys = {key: base64.b64encode(secrets.token_bytes(32)).decode() for key in ("privateKey", "publicKey")}
    labels = {REMOTE: gateway.labels.get(REMOTE, ""), _GATEWAY_RESOURCE: "true"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": keys}
