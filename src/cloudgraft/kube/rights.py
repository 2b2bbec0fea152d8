"""Lists the rights that cloudgraft needs in a cluster: one table for pages, manifests and checks.

No installation needs all of it: a disabled feature needs no rights.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

TOKEN_NAMESPACE = "kube-system"  # noqa: S105 - where the cluster looks for bootstrap tokens
OWN_NAMESPACE = "kube-system"  # of cloudgraft's Deployment, unless kubernetes.events.namespace names another
NODE_EVENTS_NAMESPACE = "default"  # a node is in no namespace, and the API wants events about it here


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """Verbs on one kind of objects; in one namespace, or, when that is empty, in the whole cluster."""

    resource: str  # "nodes", or "nodes/status"
    verb: str
    group: str = ""  # of the API; empty is the core
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in the namespace {self.namespace}" if self.namespace else "")


class Feature(enum.Enum):
    """The feature that needs a right. The value is its name in the configuration."""

    NODES = "kubernetes"
    PROVIDER_ID = "kubernetes.setProviderID"
    LABELS = "kubernetes.labelNodes"
    REMOVAL = "kubernetes.removeNodes"
    EVENTS = "kubernetes.events"
    TOKENS = "join.token"
    DOCTOR = "cloudgraft doctor"


RIGHTS: dict[Feature, tuple[Right, ...]] = {
    Feature.NODES: (Right(verb="list", resource="nodes"), Right(verb="watch", resource="nodes")),
    Feature.PROVIDER_ID: (Right(verb="patch", resource="nodes"),),
    Feature.LABELS: (Right(verb="patch", resource="nodes"),),
    Feature.REMOVAL: (Right(verb="delete", resource="nodes"),),
    Feature.EVENTS: (
        Right(verb="create", resource="events", namespace=NODE_EVENTS_NAMESPACE),
        Right(verb="create", resource="events", namespace=OWN_NAMESPACE),
        Right(verb="get", resource="deployments", group="apps", namespace=OWN_NAMESPACE),
    ),
    # Neither get nor list: a right to read the secrets of that namespace gives control of the cluster.
    Feature.TOKENS: (
        Right(verb="create", resource="secrets", namespace=TOKEN_NAMESPACE),
        Right(verb="delete", resource="secrets", namespace=TOKEN_NAMESPACE),
    ),
    Feature.DOCTOR: (
        Right(verb="list", resource="nodes"),
        Right(verb="list", resource="deployments", group="apps"),
    ),
}
