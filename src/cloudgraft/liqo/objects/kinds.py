"""Liqo's kinds, and the words on its objects that others act by."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudgraft.kube.objects import NODES, CustomObject, Kind, custom_kind

__all__ = [
    "CLUSTER_ID_MAPS",
    "CONFIGURATIONS",
    "CONNECTIONS",
    "CONSUMER",
    "ENDED",
    "FOREIGN_CLUSTERS",
    "GATEWAY_CLIENTS",
    "GATEWAY_SERVERS",
    "IDENTITY_TYPE",
    "IS_OURS",
    "NAMESPACES",
    "NETWORKS",
    "NETWORK_TYPE",
    "OURS",
    "OUR_SLICES",
    "PUBLIC_KEYS",
    "REMOTE",
    "REMOTE_NAMESPACE",
    "ROLE_BINDINGS",
    "SECRETS",
    "SERVICE_ACCOUNTS",
    "SLICES",
    "TENANTS",
    "TENANT_NAMESPACE",
    "TENANT_NAMESPACES",
    "VIRTUAL_NODES",
    "VIRTUAL_NODE_OBJECTS",
    "about",
    "is_ours",
    "named",
]

REMOTE: Final = "liqo.io/remote-cluster-id"
TENANT_NAMESPACE: Final = "liqo.io/tenant-namespace"
IDENTITY_TYPE: Final = "liqo.io/identity-type"
REMOTE_NAMESPACE: Final = "liqo.io/remote-tenant-namespace"
NETWORK_TYPE: Final = "ipam.liqo.io/network-type"
OURS: Final = "app.kubernetes.io/managed-by"  # on every object that we make, with the value below
IS_OURS: Final = "cloudgraft"
CONSUMER: Final = "cloudgraft/consumer"  # on namespaces for a peering: whose, for both sides may be consumers
ENDED: Final = "cloudgraft/ended"  # on the note of a peering of which nothing of ours is left

_CORE: Final = "api/v1"
_AUTHENTICATION: Final = "apis/authentication.liqo.io/v1beta1"
_NETWORKING: Final = "apis/networking.liqo.io/v1beta1"
_OFFLOADING: Final = "apis/offloading.liqo.io/v1beta1"

NAMESPACES: Final = custom_kind(_CORE, "namespaces")
SECRETS: Final = custom_kind(_CORE, "secrets")
SERVICE_ACCOUNTS: Final = custom_kind(_CORE, "serviceaccounts")
ROLE_BINDINGS: Final = custom_kind("apis/rbac.authorization.k8s.io/v1", "rolebindings")
FOREIGN_CLUSTERS: Final = custom_kind("apis/core.liqo.io/v1beta1", "foreignclusters")
TENANTS: Final = custom_kind(_AUTHENTICATION, "tenants")
SLICES: Final = custom_kind(_AUTHENTICATION, "resourceslices")
CONFIGURATIONS: Final = custom_kind(_NETWORKING, "configurations")
GATEWAY_SERVERS: Final = custom_kind(_NETWORKING, "gatewayservers")
GATEWAY_CLIENTS: Final = custom_kind(_NETWORKING, "gatewayclients")
PUBLIC_KEYS: Final = custom_kind(_NETWORKING, "publickeies")  # Liqo's own plural
CONNECTIONS: Final = custom_kind(_NETWORKING, "connections")
NETWORKS: Final = custom_kind("apis/ipam.liqo.io/v1alpha1", "networks")
VIRTUAL_NODE_OBJECTS: Final = custom_kind(_OFFLOADING, "virtualnodes")

# A cluster that is a provider itself has copies of others' slices, which carry the others' labels.
OUR_SLICES: Final = replace(SLICES, label_selector=f"{OURS}={IS_OURS},!liqo.io/replicated")
VIRTUAL_NODES: Final = replace(NODES, label_selector="liqo.io/type=virtual-node")
TENANT_NAMESPACES: Final = replace(NAMESPACES, label_selector=f"{TENANT_NAMESPACE}=true")
CLUSTER_ID_MAPS: Final = custom_kind(_CORE, "configmaps", label_selector="app.kubernetes.io/name=clusterid-configmap")


def about(kind: Kind[CustomObject], cluster: str) -> Kind[CustomObject]:
    """Of the kind, those that are about a peering with that cluster."""
    return replace(kind, label_selector=f"{REMOTE}={cluster}")


def named(kind: Kind[CustomObject], name: str) -> Kind[CustomObject]:
    """Of the kind, those of that name, in all namespaces."""
    return replace(kind, field_selector=f"metadata.name={name}")


def is_ours(found: CustomObject) -> bool:
    """Whether we made it: nothing else is ever deleted (law 4)."""
    return found.labels.get(OURS) == IS_OURS
