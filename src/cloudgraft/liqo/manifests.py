"""Defines Liqo's kinds, labels and annotations, and a manifest for every object that we create. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cloudgraft.discovery.model import Resources
from cloudgraft.kube.objects import NODES, CustomObject, Kind, Manifest, custom_kind
from cloudgraft.liqo.options import GatewayOptions

# -- Liqo's kinds, labels and annotations ------------------------------------------------------------------------------


REMOTE: Final = "liqo.io/remote-cluster-id"
TENANT_NAMESPACE: Final = "liqo.io/tenant-namespace"
IDENTITY_TYPE: Final = "liqo.io/identity-type"
REMOTE_NAMESPACE: Final = "liqo.io/remote-tenant-namespace"
NETWORK_TYPE: Final = "ipam.liqo.io/network-type"
OURS: Final = "app.kubernetes.io/managed-by"  # on every object that we create, with the value below
IS_OURS: Final = "cloudgraft"
# on namespaces for a peering: the consumer's id, because both sides may be consumers
CONSUMER: Final = "cloudgraft/consumer"
ENDED: Final = "cloudgraft/ended"  # on the note of a peering whose objects are all deleted

_CORE: Final = "api/v1"
_AUTHENTICATION_API: Final = "apis/authentication.liqo.io/v1beta1"
_NETWORKING_API: Final = "apis/networking.liqo.io/v1beta1"
_OFFLOADING: Final = "apis/offloading.liqo.io/v1beta1"

NAMESPACES: Final = custom_kind(_CORE, "namespaces")
SECRETS: Final = custom_kind(_CORE, "secrets")
SERVICE_ACCOUNTS: Final = custom_kind(_CORE, "serviceaccounts")
ROLE_BINDINGS: Final = custom_kind("apis/rbac.authorization.k8s.io/v1", "rolebindings")
FOREIGN_CLUSTERS: Final = custom_kind("apis/core.liqo.io/v1beta1", "foreignclusters")
TENANTS: Final = custom_kind(_AUTHENTICATION_API, "tenants")
SLICES: Final = custom_kind(_AUTHENTICATION_API, "resourceslices")
CONFIGURATIONS: Final = custom_kind(_NETWORKING_API, "configurations")
GATEWAY_SERVERS: Final = custom_kind(_NETWORKING_API, "gatewayservers")
GATEWAY_CLIENTS: Final = custom_kind(_NETWORKING_API, "gatewayclients")
PUBLIC_KEYS: Final = custom_kind(_NETWORKING_API, "publickeies")  # Liqo's own plural
CONNECTIONS: Final = custom_kind(_NETWORKING_API, "connections")
NETWORKS: Final = custom_kind("apis/ipam.liqo.io/v1alpha1", "networks")
VIRTUAL_NODE_OBJECTS: Final = custom_kind(_OFFLOADING, "virtualnodes")

# A cluster that is itself a provider has copies of foreign slices, which carry the others' labels.
OUR_SLICES: Final = replace(SLICES, label_selector=f"{OURS}={IS_OURS},!liqo.io/replicated")
VIRTUAL_NODES: Final = replace(NODES, label_selector="liqo.io/type=virtual-node")
TENANT_NAMESPACES: Final = replace(NAMESPACES, label_selector=f"{TENANT_NAMESPACE}=true")
CLUSTER_ID_MAPS: Final = custom_kind(_CORE, "configmaps", label_selector="app.kubernetes.io/name=clusterid-configmap")


def about(kind: Kind[CustomObject], cluster: str) -> Kind[CustomObject]:
    """Selects the objects of a peering with that cluster."""
    return replace(kind, label_selector=f"{REMOTE}={cluster}")


def named(kind: Kind[CustomObject], name: str) -> Kind[CustomObject]:
    """Selects the objects of that name, in all namespaces."""
    return replace(kind, field_selector=f"metadata.name={name}")


def is_ours(found: CustomObject) -> bool:
    """Whether we created it: nothing else is ever deleted (law 4)."""
    return found.labels.get(OURS) == IS_OURS


def section(found: CustomObject | None, name: str) -> Mapping[str, Any]:
    """A part of an object's content, such as its status; empty when there is none."""
    content = None if found is None else found.content.get(name)
    return content if isinstance(content, Mapping) else {}


# -- Manifests ---------------------------------------------------------------------------------------------------------
# Names and labels are those of Liqo's declarative peering. Each object is also marked as ours, so that foreign objects
# are never deleted.


ACCOUNT: Final = "cloudgraft-consumer"  # the consumer's account at a provider
NOTE: Final = "cloudgraft-peering-begun"  # the name of the Secret that marks that we consume the peer
TOKEN: Final = "cloudgraft-consumer-token"  # noqa: S105 - the name of the object that has it
TAGS: Final = "cloudgraft/tags"  # annotations: label values are too restricted
SHAPE: Final = "cloudgraft/shape"
_GATEWAY: Final = "networking.liqo.io/gateway-resource"
_AUTHENTICATION: Final = "authentication.liqo.io/v1beta1"
_NETWORKING: Final = "networking.liqo.io/v1beta1"
_KEYS: Final = "cloudgraft-gw-keys"
_RBAC: Final = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a gateway's server."""

    addresses: Sequence[str]
    port: int
    protocol: str = "UDP"


def tenant_namespace(peer: str) -> str:
    """The default name of the namespace for a peer."""
    return f"liqo-tenant-{peer}"


def namespace(peer: str, consumer: str) -> Manifest:
    """The namespace for all objects of one peering, created for that consumer."""
    labels = {REMOTE: peer, TENANT_NAMESPACE: "true", OURS: IS_OURS, CONSUMER: consumer}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant_namespace(peer), "labels": labels}}


def note(provider: str) -> Manifest:
    """At the consumer: marks that it has begun to peer with the provider. Has no content."""
    return {**_object("v1", "Secret", NOTE, provider), "type": "Opaque"}


def tenant(consumer: str) -> Manifest:
    """At the provider: allows the consumer to request slices without a handshake of keys."""
    spec = {"clusterID": consumer, "authzPolicy": "TolerateNoHandshake", "tenantCondition": "Active"}
    return _object(_AUTHENTICATION, "Tenant", consumer, consumer, spec=spec)


def service_account(consumer: str) -> Manifest:
    """At the provider: the consumer's account."""
    return _object("v1", "ServiceAccount", ACCOUNT, consumer)


def token_secret(consumer: str) -> Manifest:
    """At the provider: a token of that account, valid until the account is deleted."""
    made = _object("v1", "Secret", TOKEN, consumer, annotations={"kubernetes.io/service-account.name": ACCOUNT})
    return {**made, "type": "kubernetes.io/service-account-token"}


def role_binding(consumer: str, space: str) -> Manifest:
    """At the provider: allows that account to request slices, and nothing else, in this namespace only."""
    made = _object(f"{_RBAC}/v1", "RoleBinding", "cloudgraft-remote-controlplane", consumer)
    return {
        **made,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "liqo-remote-controlplane"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": space}],
    }


def kubeconfig(server: str, authority: str, token: str, space: str) -> str:
    """The credentials of the consumer's Liqo at the provider. JSON is YAML."""
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
    """The name of the consumer's Secret with its Liqo's credentials for a provider."""
    return f"cloudgraft-controlplane-{provider}"


def identity_secret(provider: str, remote_space: str, config: str) -> Manifest:
    """At the consumer: starts the replication of slices. The last object of a peering: if it exists, all do."""
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
    """The key pair of a gateway's own side, in base64 as WireGuard writes it."""
    made = _object("v1", "Secret", _KEYS, peer, labels={_GATEWAY: "true"})
    data = {"privateKey": private, "publicKey": public}
    return {**made, "type": "Opaque", "data": data}


def public_key(peer: str, key: str) -> Manifest:
    """The public key of the peer's gateway."""
    return _object(_NETWORKING, "PublicKey", peer, peer, labels={_GATEWAY: "true"}, spec={"publicKey": key})


def gateway_server(peer: str, options: GatewayOptions, node_port: int, liqo: str) -> Manifest:
    """The side of a gateway that listens."""
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
    """The side of a gateway that dials."""
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
    """The request to a provider; Liqo creates a virtual node of the same name when it is granted."""
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
