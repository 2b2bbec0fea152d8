"""What cloudgraft must be allowed to do in a cluster: one table, from which pages, manifests and checks follow.

Nobody needs all of it: a feature that is switched off needs no rights.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["RIGHTS", "TOKEN_NAMESPACE", "Feature", "Right", "rights_of"]

TOKEN_NAMESPACE = "kube-system"  # noqa: S105 - where the cluster looks for bootstrap tokens


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Right:
    """To do something with one kind of objects; in one namespace, or, when that is empty, in the whole cluster."""

    resource: str  # "nodes", or "nodes/status"
    verb: str
    group: str = ""  # of the API; empty is the core
    namespace: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}" + (f" in the namespace {self.namespace}" if self.namespace else "")


class Feature(enum.Enum):
    """What a right is needed for. The value is what the configuration calls it."""

    NODES = "kubernetes"
    PROVIDER_ID = "kubernetes.setProviderID"
    LABELS = "kubernetes.labelNodes"
    REMOVAL = "kubernetes.removeNodes"
    TOKENS = "join.token"
    DOCTOR = "cloudgraft doctor"


RIGHTS: dict[Feature, tuple[Right, ...]] = {
    Feature.NODES: (Right(verb="list", resource="nodes"), Right(verb="watch", resource="nodes")),
    Feature.PROVIDER_ID: (Right(verb="patch", resource="nodes"),),
    Feature.LABELS: (Right(verb="patch", resource="nodes"),),
    Feature.REMOVAL: (Right(verb="delete", resource="nodes"),),
    # Neither get nor list: who may read the secrets of that namespace owns the cluster.
    Feature.TOKENS: (
        Right(verb="create", resource="secrets", namespace=TOKEN_NAMESPACE),
        Right(verb="delete", resource="secrets", namespace=TOKEN_NAMESPACE),
    ),
    Feature.DOCTOR: (
        Right(verb="list", resource="nodes"),
        Right(verb="list", resource="deployments", group="apps"),
    ),
}


def rights_of(features: Iterable[Feature]) -> tuple[Right, ...]:
    """All rights that these features need together, each once, in a fixed order."""
    return tuple(sorted({right for feature in features for right in RIGHTS[feature]}))
