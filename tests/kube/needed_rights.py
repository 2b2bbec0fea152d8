"""Lists the rights that parts with an account of their own need: pages, manifests and fakes are compared with it."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from cloudgraft.kube.rights import RIGHTS, Feature, Right

LIQO = "liqo"  # the namespace of Liqo, unless the options name another
TENANT = "liqo-tenant-…"  # one namespace for each peer


class Part(enum.Enum):
    """Parts with an account of their own, in a cluster of their own. The value is their name on pages."""

    CONSUMER = "driver `liqo`, in the consumer"
    PROVIDER = "driver `liqo`, in a provider"
    AGENT = "`cloudgraft discovery agent`"
    IMPORT = "`import` of the discovery server"


def _rights(resource: str, verbs: str, group: str = "", namespace: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb=verb, resource=resource, group=group, namespace=namespace) for verb in verbs.split())


_NETWORKING = "networking.liqo.io"
_NETWORK = tuple(
    right
    for kind in ("configurations", "gatewayclients", "gatewayservers", "publickeies")
    for right in _rights(kind, "list create delete", _NETWORKING, TENANT)
)
_LIQOS_OWN = (*_rights("configmaps", "list", "", LIQO), *_rights("networks", "list", "ipam.liqo.io", LIQO))
PART_RIGHTS: dict[Part, tuple[Right, ...]] = {
    Part.CONSUMER: (
        *_rights("nodes", "list watch patch"),
        *_rights("namespaces", "get list create delete"),
        *_rights("resourceslices", "list watch", "authentication.liqo.io"),
        *_rights("foreignclusters", "get patch", "core.liqo.io"),
        *_LIQOS_OWN,
        *_rights("resourceslices", "get create delete", "authentication.liqo.io", TENANT),
        *_rights("virtualnodes", "list patch", "offloading.liqo.io", TENANT),
        *_rights("secrets", "get list create patch delete", "", TENANT),
        *_NETWORK,
        *_rights("connections", "list", _NETWORKING, TENANT),
    ),
    # The provider may create the namespaces itself: then only `get` is needed.
    Part.PROVIDER: (
        *_rights("namespaces", "get list create delete"),
        *_LIQOS_OWN,
        *_rights("tenants", "list create delete", "authentication.liqo.io", TENANT),
        *_rights("secrets", "get list create delete", "", TENANT),
        *_NETWORK,
        *_rights("serviceaccounts", "get list create delete", "", TENANT),
        *_rights("rolebindings", "get list create delete", "rbac.authorization.k8s.io", TENANT),
        # Only for the ClusterRole liqo-remote-controlplane; so it need not have that role's rights itself.
        *_rights("clusterroles", "bind", "rbac.authorization.k8s.io", TENANT),
    ),
    Part.AGENT: (
        *_rights("nodes", "list watch"),
        *_rights("pods", "list watch"),
        *_rights("configmaps", "list"),  # only if its file lacks `cluster.id`
    ),
    Part.IMPORT: _rights("secrets", "list watch", "", "…"),
}


def rights_of(features: Iterable[Feature]) -> tuple[Right, ...]:
    """All rights that these features need together, each once, in a fixed order."""
    return tuple(sorted({right for feature in features for right in RIGHTS[feature]}))
