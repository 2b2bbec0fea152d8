"""Every object that we make, as a manifest. Pure.

Names and labels are those of Liqo's declarative peering; each object also says that it is ours, so that what somebody
else made is never taken away.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.discovery.model import Resources
from cloudgraft.kube.objects import Manifest
from cloudgraft.liqo.objects.kinds import (
    CONSUMER,
    IDENTITY_TYPE,
    IS_OURS,
    OURS,
    REMOTE,
    REMOTE_NAMESPACE,
    TENANT_NAMESPACE,
)
from cloudgraft.liqo.options import GatewayOptions

__all__ = [
    "ACCOUNT",
    "NOTE",
    "SHAPE",
    "TAGS",
    "TOKEN",
    "Endpoint",
    "configuration",
    "gateway_client",
    "gateway_server",
    "identity_name",
    "identity_secret",
    "keys_secret",
    "kubeconfig",
    "namespace",
    "note",
    "public_key",
    "resource_slice",
    "role_binding",
    "service_account",
    "tenant",
    "tenant_namespace",
    "token_secret",
]

ACCOUNT: Final = "cloudgraft-consumer"  # as which a consumer comes to a provider
NOTE: Final = "cloudgraft-peering-begun"  # the name of the Secret that says that we consume the peer
TOKEN: Final = "cloudgraft-consumer-token"  # noqa: S105 - the name of the object that has it
TAGS: Final = "cloudgraft/tags"  # annotations: values of labels are too narrow
SHAPE: Final = "cloudgraft/shape"
_GATEWAY: Final = "networking.liqo.io/gateway-resource"
_AUTHENTICATION: Final = "authentication.liqo.io/v1beta1"
_NETWORKING: Final = "networking.liqo.io/v1beta1"
_KEYS: Final = "cloudgraft-gw-keys"
_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server of a gateway is reached."""

    addresses: Sequence[str]
    port: int
    protocol: str = "UDP"


def tenant_namespace(peer: str) -> str:
    """What a tenant namespace for a peer is called, unless somebody chose another name for it."""
    return f"liqo-tenant-{peer}"


def namespace(peer: str, consumer: str) -> Manifest:
    """The namespace in which all about one peering is, made for the sake of that consumer."""
    labels = {REMOTE: peer, TENANT_NAMESPACE: "true", OURS: IS_OURS, CONSUMER: consumer}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant_namespace(peer), "labels": labels}}


def note(provider: str) -> Manifest:
    """At the consumer: it has begun to peer with the provider. It holds nothing."""
    return {**_object("v1", "Secret", NOTE, provider), "type": "Opaque"}


def tenant(consumer: str) -> Manifest:
    """At the provider: lets the consumer ask for slices without a handshake of keys."""
    spec = {"clusterID": consumer, "authzPolicy": "TolerateNoHandshake", "tenantCondition": "Active"}
    return _object(_AUTHENTICATION, "Tenant", consumer, consumer, spec=spec)


def service_account(consumer: str) -> Manifest:
    """At the provider: who the consumer is there."""
    return _object("v1", "ServiceAccount", ACCOUNT, consumer)


def token_secret(consumer: str) -> Manifest:
    """At the provider: a token of that account which lasts until the account is deleted."""
    made = _object("v1", "Secret", TOKEN, consumer, annotations={"kubernetes.io/service-account.name": ACCOUNT})
    return {**made, "type": "kubernetes.io/service-account-token"}


def role_binding(consumer: str, space: str) -> Manifest:
    """At the provider: lets that account ask for slices, and nothing else, in this namespace only."""
    made = _object(f"{_RBAC}/v1", "RoleBinding", "cloudgraft-remote-controlplane", consumer)
    return {
        **made,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "liqo-remote-controlplane"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": space}],
    }


def kubeconfig(server: str, authority: str, token: str, space: str) -> str:
    """With what the consumer's Liqo gets in at the provider. JSON is YAML."""
    cluster = {"server": server}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "provider", "cluster": cluster}],
            "users": [{"name": ACCOUNT, "user": {"token": token}}],
            "contexts": [{"name": "provider", "context": {"cluster": "provider", "user": ACCOUNT, "namespace": space}}],
            "current-context": "provider",
        }
    )


def identity_name(provider: str) -> str:
    """What the Secret at the consumer is called by which its Liqo gets in at a provider."""
    return f"cloudgraft-controlplane-{provider}"


def identity_secret(provider: str, remote_space: str, config: str) -> Manifest:
    """At the consumer: begins the replication of slices. The last object of a peering: when it is there, all is."""
    made = _object(
        "v1",
        "Secret",
        identity_name(provider),
        provider,
        labels={IDENTITY_TYPE: "ControlPlane"},
        annotations={REMOTE_NAMESPACE: remote_space},
    )
    return {**made, "type": "Opaque", "data": {"kubeconfig": base64.b64encode(config.encode()).decode()}}


def configuration(peer: str, pods: Sequence[str], external: Sequence[str]) -> Manifest:
    """The address ranges of the peer."""
    spec = {"remote": {"cidr": {"pod": list(pods), "external": list(external)}}}
    return _object(_NETWORKING, "Configuration", peer, peer, spec=spec)


def keys_secret(peer: str, private: str, public: str) -> Manifest:
    """The key pair of a gateway's own side, in base64 as WireGuard has them."""
    made = _object("v1", "Secret", _KEYS, peer, labels={_GATEWAY: "true"})
    data = {"privateKey": private, "publicKey": public}
    return {**made, "type": "Opaque", "data": data}


def public_key(peer: str, key: str) -> Manifest:
    """The public key of the peer's gateway."""
    return _object(_NETWORKING, "PublicKey", peer, peer, labels={_GATEWAY: "true"}, spec={"publicKey": key})


def gateway_server(peer: str, options: GatewayOptions, node_port: int, liqo: str) -> Manifest:
    """The side of a gateway that waits to be called."""
    endpoint: dict[str, object] = {"port": options.port, "serviceType": options.service_type}
    if node_port:
        endpoint |= {"serviceType": "NodePort", "nodePort": node_port}
    template = _template("WgGatewayServerTemplate", "wireguard-server", liqo)
    spec = {
        "endpoint": endpoint,
        "mtu": options.mtu,
        "secretRef": {"name": _KEYS},
        "serverTemplateRef": template,
    }
    return _object(_NETWORKING, "GatewayServer", peer, peer, spec=spec)


def gateway_client(peer: str, options: GatewayOptions, endpoint: Endpoint, liqo: str) -> Manifest:
    """The side of a gateway that calls."""
    spec = {
        "endpoint": {
            "addresses": list(endpoint.addresses),
            "port": endpoint.port,
            "protocol": endpoint.protocol,
        },
        "mtu": options.mtu,
        "secretRef": {"name": _KEYS},
        "clientTemplateRef": _template("WgGatewayClientTemplate", "wireguard-client", liqo),
    }
    return _object(_NETWORKING, "GatewayClient", peer, peer, spec=spec)


def resource_slice(
    name: str, provider: str, resources: Resources, slice_class: str, *, tags: Mapping[str, str], shape: str
) -> Manifest:
    """What is asked of a provider; Liqo makes a virtual node of the same name when it is granted."""
    annotations = {
        "liqo.io/create-virtual-node": "true",
        TAGS: json.dumps(dict(tags), sort_keys=True),
        SHAPE: shape,
    }
    spec = {
        "class": slice_class,
        "providerClusterID": provider,
        "resources": {key: str(amount) for key, amount in resources.items()},
    }
    labels = {"liqo.io/remoteID": provider, "liqo.io/replication": "true"}
    return _object(_AUTHENTICATION, "ResourceSlice", name, provider, labels=labels, annotations=annotations, spec=spec)


def _template(kind: str, name: str, liqo: str) -> Manifest:
    return {"apiVersion": _NETWORKING, "kind": kind, "name": name, "namespace": liqo}


def _object(
    version: str,
    kind: str,
    name: str,
    peer: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Manifest | None = None,
) -> dict[str, object]:
    metadata: dict[str, object] = {"name": name, "labels": {REMOTE: peer, OURS: IS_OURS, **(labels or {})}}
    if annotations:
        metadata["annotations"] = dict(annotations)
    made: dict[str, object] = {"apiVersion": version, "kind": kind, "metadata": metadata}
    return made if spec is None else {**made, "spec": spec}
