"""The networks between two clusters, as far as objects tell of them: no packet ever flows."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final

from cloudgraft.demo.fake_liqo.cluster import Cluster
from cloudgraft.demo.fake_liqo.pace import Pace
from cloudgraft.demo.fake_liqo.script import Script
from cloudgraft.demo.fake_liqo.words import (
    CONFIGURATIONS,
    CONNECTIONS,
    GATEWAY_CLIENTS,
    GATEWAY_SERVERS,
    PUBLIC_KEYS,
    REMOTE,
    SECRETS,
    owner,
    spec_of,
    status_of,
    with_condition,
)
from cloudgraft.kube.objects import CustomObject, Kind

__all__ = ["NETWORK_KINDS", "Network"]

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
