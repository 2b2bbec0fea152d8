"""Connects the networks of two clusters by plain objects at both sides: address ranges, keys, a gateway each.

One side's gateway listens (the server), the other dials it (the client). The server is at the provider, unless that is
behind NAT. A foreign gateway is as good as ours.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from cloudgraft.discovery.model import Network, NetworkMode
from cloudgraft.kube.objects import CustomObject
from cloudgraft.liqo import manifests
from cloudgraft.liqo.ensure import ensure, ensure_any, steps
from cloudgraft.liqo.manifests import (
    CONFIGURATIONS,
    CONNECTIONS,
    GATEWAY_CLIENTS,
    GATEWAY_SERVERS,
    NETWORK_TYPE,
    NETWORKS,
    PUBLIC_KEYS,
    SECRETS,
    about,
    section,
)
from cloudgraft.liqo.options import GatewayOptions
from cloudgraft.liqo.placement import ClusterError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient

# -- WireGuard key pairs -----------------------------------------------------------------------------------------------
# 32 bytes each, in base64.


def new_pair() -> tuple[str, str]:
    """A new private key, and the public one that goes with it."""
    private = X25519PrivateKey.generate()
    halves = (private.private_bytes_raw(), private.public_key().public_bytes_raw())
    return base64.b64encode(halves[0]).decode(), base64.b64encode(halves[1]).decode()


# -- Network -----------------------------------------------------------------------------------------------------------


# In the order of deletion.
NETWORK_KINDS = (GATEWAY_CLIENTS, GATEWAY_SERVERS, PUBLIC_KEYS, CONFIGURATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two clusters, with its namespace for the other."""

    client: KubeClient
    cluster: str
    peer: str
    space: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranges:
    pods: tuple[str, ...]
    external: tuple[str, ...]


async def connect_networks(
    consumer: Side, provider: Side, network: Network, options: GatewayOptions, liqo: str
) -> None:
    """Returns when the consumer's side reports the connection. The caller sets the deadline."""
    for here, there in ((consumer, provider), (provider, consumer)):
        ranges = await _ranges(there, liqo)
        ours = manifests.configuration(there.cluster, ranges.pods, ranges.external)
        await ensure_any(here.client, about(CONFIGURATIONS, there.cluster), ours, here.space)
    is_reversed = network.mode is NetworkMode.CONSUMER_GATEWAY
    server, client = (consumer, provider) if is_reversed else (provider, consumer)
    await _exchange_keys(server, client)
    endpoint = await _serve(server, network, options, liqo)
    calling = manifests.gateway_client(client.peer, options, endpoint, liqo)
    await ensure_any(client.client, about(GATEWAY_CLIENTS, client.peer), calling, client.space)
    async for _ in steps():
        found = (await consumer.client.list(about(CONNECTIONS, consumer.peer), namespace=consumer.space)).items
        if any(section(one, "status").get("value") == "Connected" for one in found):
            return


async def _ranges(side: Side, liqo: str) -> _Ranges:
    async for _ in steps():
        found = (await side.client.list(NETWORKS, namespace=liqo)).items
        by_type: dict[str, list[str]] = {}
        for one in found:
            cidr = section(one, "status").get("cidr")
            if isinstance(cidr, str) and cidr:
                by_type.setdefault(one.labels.get(NETWORK_TYPE, one.name), []).append(cidr)
        if by_type.get("pod-cidr") and by_type.get("external-cidr"):
            return _Ranges(pods=tuple(by_type["pod-cidr"]), external=tuple(by_type["external-cidr"][:1]))
    raise AssertionError  # steps have no end


async def _exchange_keys(one: Side, other: Side) -> None:
    for here, there in ((one, other), (other, one)):
        private, public = new_pair()  # used only if there is none yet
        kept = await ensure(here.client, SECRETS, manifests.keys_secret(here.peer, private, public), here.space)
        key = _public_key(kept, here.cluster)
        theirs = manifests.public_key(there.peer, key)
        await ensure_any(there.client, about(PUBLIC_KEYS, there.peer), theirs, there.space)


def _public_key(secret: CustomObject, cluster: str) -> str:
    key = section(secret, "data").get("publicKey")
    try:
        if isinstance(key, str) and len(base64.b64decode(key, validate=True)) > 0:
            return key
    except binascii.Error:
        pass
    raise ClusterError(f"the Secret {secret.name} of the gateway at {cluster} holds no public key: delete it")


async def _serve(server: Side, network: Network, options: GatewayOptions, liqo: str) -> manifests.Endpoint:
    wanted = manifests.gateway_server(server.peer, options, network.node_port, liqo)
    await ensure_any(server.client, about(GATEWAY_SERVERS, server.peer), wanted, server.space)
    if network.mode is NetworkMode.ADDRESS_OVERRIDE and network.address:
        return manifests.Endpoint(addresses=[network.address], port=network.port or network.node_port or options.port)
    async for _ in steps():
        for one in (await server.client.list(about(GATEWAY_SERVERS, server.peer), namespace=server.space)).items:
            endpoint = _endpoint(section(one, "status").get("endpoint"))
            if endpoint is not None:
                return endpoint
    raise AssertionError  # steps have no end


def _endpoint(status: object) -> manifests.Endpoint | None:
    if not isinstance(status, Mapping):
        return None
    addresses, port = status.get("addresses"), status.get("port")
    if not isinstance(addresses, list) or not addresses or not isinstance(port, int) or not port:
        return None
    return manifests.Endpoint(addresses=[str(one) for one in addresses], port=port)
