"""Lists Liqo's kinds, labels and other names, as far as the fake uses them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cloudgraft.kube.objects import CustomObject, custom_kind

_AUTHENTICATION: Final = "apis/authentication.liqo.io/v1beta1"
_OFFLOADING: Final = "apis/offloading.liqo.io/v1beta1"
_NETWORKING: Final = "apis/networking.liqo.io/v1beta1"

LIQO: Final = "liqo"  # the namespace that it is installed in
REMOTE: Final = "liqo.io/remote-cluster-id"
REPLICATION: Final = "liqo.io/replication"
REPLICATED: Final = "liqo.io/replicated"
DESTINATION: Final = "liqo.io/remoteID"
SLICE_NAME: Final = "liqo.io/resourceslice-name"
IDENTITY_TYPE: Final = "liqo.io/identity-type"
REMOTE_NAMESPACE: Final = "liqo.io/remote-tenant-namespace"
TENANT_NAMESPACE: Final = "liqo.io/tenant-namespace"
CREATE_VIRTUAL_NODE: Final = "liqo.io/create-virtual-node"
FOREGROUND: Final = "foregroundDeletion"  # an API server's own: the object waits for what it owns
FINALIZER: Final = "crdreplicator.liqo.io/resource"
IDENTITY_FINALIZER: Final = "crdreplicator.liqo.io/operator"
TENANT_FINALIZER: Final = "tenant.liqo.io/finalizer"
CHECKER_FINALIZER: Final = "api-server-checker.liqo.io/finalizer"
UNREACHABLE: Final = "liqo.io/foreign-cluster-permanently-unreachable"  # on a ForeignCluster, by a person
VIRTUAL_NODE_FINALIZER: Final = "virtualnode-controller.liqo.io/finalizer"

NAMESPACES: Final = custom_kind("api/v1", "namespaces")
CONFIG_MAPS: Final = custom_kind("api/v1", "configmaps")
SECRETS: Final = custom_kind("api/v1", "secrets")
IDENTITY_SECRETS: Final = custom_kind("api/v1", "secrets", label_selector=f"{IDENTITY_TYPE}=ControlPlane,{REMOTE}")
TOKEN_SECRETS: Final = custom_kind("api/v1", "secrets", field_selector="type=kubernetes.io/service-account-token")
NODES: Final = custom_kind("api/v1", "nodes", label_selector="liqo.io/type=virtual-node")
CLUSTER_ROLES: Final = custom_kind("apis/rbac.authorization.k8s.io/v1", "clusterroles")
FOREIGN_CLUSTERS: Final = custom_kind("apis/core.liqo.io/v1beta1", "foreignclusters")
TENANTS: Final = custom_kind(_AUTHENTICATION, "tenants")
IDENTITIES: Final = custom_kind(_AUTHENTICATION, "identities")
SLICES: Final = custom_kind(_AUTHENTICATION, "resourceslices")
VIRTUAL_NODES: Final = custom_kind(_OFFLOADING, "virtualnodes")
NAMESPACE_MAPS: Final = custom_kind(_OFFLOADING, "namespacemaps")
QUOTAS: Final = custom_kind(_OFFLOADING, "quotas")
CONFIGURATIONS: Final = custom_kind(_NETWORKING, "configurations")
CONNECTIONS: Final = custom_kind(_NETWORKING, "connections")
NETWORKS: Final = custom_kind("apis/ipam.liqo.io/v1alpha1", "networks")

_Json = dict[str, Any]


def spec_of(found: CustomObject) -> _Json:
    """Its spec, or an empty one."""
    spec: Any = found.content.get("spec")
    return spec if isinstance(spec, dict) else {}


def status_of(found: CustomObject) -> _Json:
    """Its status, or an empty one."""
    status: Any = found.content.get("status")
    return status if isinstance(status, dict) else {}


def finalizers_of(found: CustomObject) -> list[str]:
    """Its finalizers."""
    metadata: Any = found.content["metadata"]
    return list(metadata.get("finalizers") or ())


def owner(found: CustomObject, kind: str, version: str = "authentication.liqo.io/v1beta1") -> _Json:
    """An owner reference to that object."""
    reference = {"apiVersion": version, "kind": kind, "name": found.name, "uid": found.uid}
    return reference | {"controller": True, "blockOwnerDeletion": True}


def condition(found: CustomObject, kind: str) -> Mapping[str, Any]:
    """One of the conditions in its status; empty when it is not there."""
    return next((each for each in status_of(found).get("conditions") or () if each["type"] == kind), {})


def accepted(found: CustomObject, kind: str) -> bool:
    """Whether the provider has accepted that."""
    return condition(found, kind).get("status") == "Accepted"


def with_condition(found: CustomObject, kind: str, status: str, reason: str, message: str) -> list[_Json]:
    """Its conditions with that one set; the time is that of its last change."""
    had = condition(found, kind)
    since = had.get("lastTransitionTime", now_text()) if had.get("status") == status else now_text()
    entry = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    others = [each for each in status_of(found).get("conditions") or () if each["type"] != kind]
    return [*others, entry]


def now_text() -> str:
    """The time as objects have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
