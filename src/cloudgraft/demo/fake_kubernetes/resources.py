"""Defines what a call to the server is about: kinds, routes, selectors, and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote


@dataclass(frozen=True)
class Request:
    """A call that was made."""

    method: str
    plural: str
    name: str
    query: dict[str, str]
    at: float  # on the monotonic clock
    namespace: str = ""  # empty: all of them
    group: str = ""  # of the API
    subresource: str = ""
    user: str = ""  # empty: unknown to the server

    @property
    def is_watch(self) -> bool:
        """Whether it is a watch, which runs until it is ended."""
        return self.query.get("watch") in {"true", "1"}

    @property
    def verb(self) -> str:
        """As rights call it."""
        if self.method == "GET":
            return "watch" if self.is_watch else "get" if self.name else "list"
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.method]


Json = dict[str, Any]


class RefusedError(Exception):
    """An answer other than success, as the API's own ``Status``."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }


def missing(resource: str, name: str) -> RefusedError:
    """There is no object of that name."""
    return RefusedError(404, "NotFound", f'{resource} "{name}" not found')


# -- kinds -------------------------------------------------------------------------------------------------------------
# More can be added at any time, by hand or by a CustomResourceDefinition.


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind, and its place in the API."""

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
        """The kinds of a CustomResourceDefinition: one for each version that is served."""
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
    """The objects that a path names. An empty name means all objects, an empty namespace all namespaces, or none."""

    resource: Resource
    namespace: str
    name: str
    subresource: str


class Resources:
    """The kinds of one server."""

    def __init__(self, resources: Iterable[Resource] = (*USUAL, *LIQO)) -> None:
        self._by_place = {(resource.base, resource.plural): resource for resource in resources}

    def add(self, *resources: Resource) -> None:
        """Adds a kind, or replaces it."""
        self._by_place.update({(resource.base, resource.plural): resource for resource in resources})

    def named(self, name: str) -> Resource:
        """By its full name, or by its plural where no two groups share it. Raises KeyError."""
        found = [resource for resource in self._by_place.values() if name in (resource.name, resource.plural)]
        if not found or len({resource.name for resource in found}) > 1:
            raise KeyError(f"{name!r} is {len(found)} kinds here")
        return found[0]

    def route(self, path: str) -> Route | None:
        """The route of a path; None for an unknown path, which the real server answers in plain text."""
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


# -- selectors ---------------------------------------------------------------------------------------------------------
# Label selectors and field selectors of lists and watches, in Kubernetes' own syntax.


Matches = Callable[[Json], bool]
_Labels = Mapping[str, str]

_TERMS: Final = re.compile(r",(?![^(]*\))")  # commas, but not those between parentheses
_IN: Final = re.compile(r"(\S+)\s+(in|notin)\s*\(([^)]*)\)")
_EQUAL: Final = re.compile(r"([^=!\s]+)\s*(==|=|!=)\s*(\S*)")
_EXISTS: Final = re.compile(r"(!?)\s*([A-Za-z0-9./_-]+)")
_FOR_ALL: Final = ("metadata.name", "metadata.namespace")


def selection(resource: Resource, query: Mapping[str, str]) -> Matches:
    """Whether an object matches a query. Raises RefusedError when the query cannot be parsed."""
    labels = [_label_term(term.strip()) for term in _split(query.get("labelSelector", ""))]
    fields = [_field_term(resource, term.strip()) for term in _split(query.get("fieldSelector", ""))]

    def matches(item: Json) -> bool:
        own = item["metadata"].get("labels") or {}
        return all(term(own) for term in labels) and all(term(item) for term in fields)

    return matches


def _split(selector: str) -> list[str]:
    return _TERMS.split(selector) if selector.strip() else []


def _label_term(term: str) -> Callable[[_Labels], bool]:
    if among := _IN.fullmatch(term):
        key, values = among[1], {value.strip() for value in among[3].split(",")}
        if among[2] == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values
    if equal := _EQUAL.fullmatch(term):
        key, value = equal[1], equal[3]
        if equal[2] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if exists := _EXISTS.fullmatch(term):
        wanted, key = not exists[1], exists[2]
        return lambda labels: (key in labels) is wanted
    raise RefusedError(400, "BadRequest", f"unable to parse requirement: {term!r}")


def _field_term(resource: Resource, term: str) -> Matches:
    equal = _EQUAL.fullmatch(term)
    if equal is None:
        raise RefusedError(400, "BadRequest", f"invalid field selector: {term!r}")
    path, value = equal[1], equal[3]
    if resource.is_custom and path not in _FOR_ALL:  # the real server knows no others of custom objects
        raise RefusedError(400, "BadRequest", f"field label not supported: {path}")
    wanted = equal[2] != "!="
    return lambda item: (_field(item, path) == value) is wanted


def _field(item: Json, path: str) -> str:
    found: object = item
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return "" if found is None else str(found)
