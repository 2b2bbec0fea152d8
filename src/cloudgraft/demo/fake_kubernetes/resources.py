"""The kinds that a server has. More can be added at any time, by hand or by a CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["LIQO", "USUAL", "Resource", "Resources", "Route"]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind, and where it is in the API."""

    base: str  # "api/v1", "apis/<group>/<version>"
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = True  # as a subresource, which nothing else changes

    @property
    def group(self) -> str:
        """The group of the API; empty for the core."""
        return self.base.split("/")[1] if self.base.startswith("apis/") else ""

    @property
    def api_version(self) -> str:
        """As manifests have it."""
        return self.base.partition("/")[2]

    @property
    def name(self) -> str:
        """Unique in a server: ``pods``, or ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_custom(self) -> bool:
        """Whether it is defined by a CustomResourceDefinition, whose objects have rules of their own."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @classmethod
    def defined_by(cls, definition: dict[str, Any]) -> tuple[Resource, ...]:
        """What a CustomResourceDefinition defines: one for each version that is served."""
        spec = definition["spec"]
        return tuple(
            cls(
                f"apis/{spec['group']}/{version['name']}",
                spec["names"]["plural"],
                spec["names"]["kind"],
                namespaced=spec["scope"] == "Namespaced",
                has_status="status" in version.get("subresources", {}),
            )
            for version in spec["versions"]
            if version["served"]
        )


_RBAC: Final = "apis/rbac.authorization.k8s.io/v1"
_AUTHENTICATION: Final = "apis/authentication.liqo.io/v1beta1"
_OFFLOADING: Final = "apis/offloading.liqo.io/v1beta1"
_NETWORKING: Final = "apis/networking.liqo.io/v1beta1"

USUAL: Final = (
    Resource("api/v1", "namespaces", "Namespace", namespaced=False),
    Resource("api/v1", "nodes", "Node", namespaced=False),
    Resource("api/v1", "pods", "Pod"),
    Resource("api/v1", "services", "Service"),
    Resource("api/v1", "events", "Event", has_status=False),
    Resource("api/v1", "secrets", "Secret", has_status=False),
    Resource("api/v1", "configmaps", "ConfigMap", has_status=False),
    Resource("api/v1", "serviceaccounts", "ServiceAccount", has_status=False),
    Resource("apis/coordination.k8s.io/v1", "leases", "Lease", has_status=False),
    Resource("apis/apps/v1", "deployments", "Deployment"),
    Resource("apis/apps/v1", "daemonsets", "DaemonSet"),
    Resource("apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Resource(_RBAC, "roles", "Role", has_status=False),
    Resource(_RBAC, "rolebindings", "RoleBinding", has_status=False),
    Resource(_RBAC, "clusterroles", "ClusterRole", namespaced=False, has_status=False),
    Resource(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False, has_status=False),
    Resource("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False),
    Resource("apis/machine.sapcloud.io/v1alpha1", "machineclasses", "MachineClass"),
)

LIQO: Final = (
    Resource("apis/core.liqo.io/v1beta1", "foreignclusters", "ForeignCluster", namespaced=False),
    Resource(_AUTHENTICATION, "tenants", "Tenant"),
    Resource(_AUTHENTICATION, "identities", "Identity"),
    Resource(_AUTHENTICATION, "resourceslices", "ResourceSlice"),
    Resource(_AUTHENTICATION, "renews", "Renew"),
    Resource(_OFFLOADING, "virtualnodes", "VirtualNode"),
    Resource(_OFFLOADING, "quotas", "Quota"),
    Resource(_OFFLOADING, "namespaceoffloadings", "NamespaceOffloading"),
    Resource(_OFFLOADING, "namespacemaps", "NamespaceMap"),
    Resource(_OFFLOADING, "vkoptionstemplates", "VkOptionsTemplate", has_status=False),
    Resource(_NETWORKING, "configurations", "Configuration"),
    Resource(_NETWORKING, "gatewayservers", "GatewayServer"),
    Resource(_NETWORKING, "gatewayclients", "GatewayClient"),
    Resource(_NETWORKING, "publickeies", "PublicKey", has_status=False),  # Liqo's own plural
    Resource(_NETWORKING, "connections", "Connection"),
    Resource("apis/ipam.liqo.io/v1alpha1", "networks", "Network"),
    Resource("apis/ipam.liqo.io/v1alpha1", "ips", "IP"),
)


@dataclass(frozen=True, slots=True)
class Route:
    """What a path names. An empty name means all objects, an empty namespace all namespaces, or none."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


class Resources:
    """The kinds of one server."""

    def __init__(self, resources: Iterable[Resource] = (*USUAL, *LIQO)) -> None:
        self._by_place = {(resource.base, resource.plural): resource for resource in resources}

    def add(self, *resources: Resource) -> None:
        """One that is there already is replaced."""
        self._by_place.update({(resource.base, resource.plural): resource for resource in resources})

    def named(self, name: str) -> Resource:
        """By its full name, or by its plural where no two groups share it. Raises KeyError."""
        found = [resource for resource in self._by_place.values() if name in (resource.name, resource.plural)]
        if not found or len({resource.name for resource in found}) > 1:
            raise KeyError(f"{name!r} is {len(found)} kinds here")
        return found[0]

    def route(self, path: str) -> Route | None:
        """What a path names; None when it is nothing of ours, which the real server answers in plain text."""
        parts = [unquote(part) for part in path.strip("/").split("/")]  # a name with a slash is still one part
        depth = 2 if parts[0] == "api" else 3
        base, rest = "/".join(parts[:depth]), parts[depth:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource, *more = [*rest, "", "", ""][: max(3, len(rest))]
        resource = self._by_place.get((base, plural))
        if resource is None or more or (namespace and not resource.namespaced):
            return None
        if name and resource.namespaced and not namespace:
            return None
        return Route(resource, namespace, name, subresource)
