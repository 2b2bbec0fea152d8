"""Parses and builds shapes: S, S@cluster, all@cluster. Pure.

A size is one shape that any cluster may fill, and one more for each cluster that is a group of its own, so that the
autoscaler chooses between clusters by price. ``all@cluster`` is everything that a cluster shares, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cloudgraft.discovery.model import Cluster, ClusterState, Resources
from cloudgraft.liqo.options import ALL
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

TAINT: Final = Taint(key="virtual-node.liqo.io/not-allowed", value="true", effect="NoExecute")
_LABELS: Final = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
_REMOTE: Final = "liqo.io/remote-cluster-id"
_NOTHING: Final = Quantity(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeName:
    """A parsed shape name. An empty cluster means any."""

    size: str
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.size}@{self.cluster}" if self.cluster else self.size

    @property
    def is_all(self) -> bool:
        """Whether it is everything that a cluster shares."""
        return self.size == ALL


def parse_shape(name: str, sizes: Mapping[str, Resources]) -> ShapeName:
    """Raises InvalidArgumentError for an invalid name."""
    size, at, cluster = name.partition("@")
    if (at and not cluster) or (size == ALL and not cluster) or (size != ALL and size not in sizes):
        known = ", ".join(sorted(sizes))
        raise InvalidArgumentError(
            f"there is no shape {name!r}; there is {known}, each also as size@cluster, and {ALL}@cluster"
        )
    return ShapeName(size=size, cluster=cluster)


def shared_by(cluster: Cluster, *, is_used_by_us: bool) -> Resources:
    """The total that a cluster shares: the declared one, or less while we use nothing of it and less is available."""
    declared = {name: amount for name, amount in cluster.spec.capacity.items() if amount > _NOTHING}
    if is_used_by_us or not cluster.free:
        return declared
    left = _left(cluster)
    return {name: min(amount, left.get(name, _NOTHING)) for name, amount in declared.items()} or left


def is_full(cluster: Cluster, asked: Resources) -> bool:
    """Whether it would give that much if it had it left: unknown for a cluster that is away."""
    if cluster.state is not ClusterState.READY:
        return False
    most, left = cluster.spec.max_nodes, _left(cluster)
    has_all = most is not None and cluster.nodes >= most
    return has_all or any(left.get(name, _NOTHING) < amount for name, amount in asked.items())


def _left(cluster: Cluster) -> Resources:
    """What is free, without what is reserved and not in use yet."""
    return {name: max(amount - cluster.reserved.get(name, _NOTHING), _NOTHING) for name, amount in cluster.free.items()}


def shape_of(name: ShapeName, capacity: Resources) -> Shape:
    """The node that Kubernetes will see for that shape (Liqo sets these labels and this taint)."""
    labels = {**_LABELS, _REMOTE: name.cluster} if name.cluster else dict(_LABELS)
    return Shape(name=str(name), capacity=dict(capacity), labels=labels, taints=(TAINT,))


def all_shapes(
    sizes: Mapping[str, Resources],
    clusters: Iterable[Cluster],
    only: Iterable[str] = (),
    *,
    used: Collection[str] | None = None,
) -> list[Shape]:
    """Every shape on offer; those of single clusters for all clusters, or for ``only`` these.

    ``used`` are the clusters that we use. If unknown, the usage of all consumers counts.
    """
    known = {cluster.spec.id: cluster for cluster in clusters}
    wanted = list(only) or sorted(known)
    shapes = [shape_of(ShapeName(size=size), amounts) for size, amounts in sizes.items()]
    for cluster in wanted:
        shapes += [shape_of(ShapeName(size=size, cluster=cluster), amounts) for size, amounts in sizes.items()]
        found = known.get(cluster)
        everything: Resources = {}
        if found is not None:
            everything = shared_by(found, is_used_by_us=bool(found.nodes) if used is None else cluster in used)
        if all(everything.get(name, _NOTHING) > _NOTHING for name in ("cpu", "memory")):
            shapes.append(shape_of(ShapeName(size=ALL, cluster=cluster), everything))
    return shapes


def is_enough(granted: Resources, asked: Resources) -> bool:
    """Whether a grant is at least what was requested, for every resource."""
    return all(granted.get(name, _NOTHING) >= amount for name, amount in asked.items())
