"""Computes what a cluster can share: the capacity of its nodes, less pod requests, less a margin. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Final

from cloudgraft.discovery.model import CLUSTER_ID, Heartbeat, Resources
from cloudgraft.kube.objects import Node, PodLoad
from cloudgraft.sdk.quantity import Quantity

_ZERO: Final = Quantity(0)
_ONE: Final = Quantity(1)
# other resources only if they are devices: "x/y"
_PLAIN: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_VIRTUAL_LABELS: Final = {"liqo.io/type": "virtual-node", "type": "virtual-kubelet"}
_VIRTUAL_TAINT: Final = "virtual-node.liqo.io/not-allowed"
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
# Labels that Liqo sets on pods that it runs here for another cluster.
_OFFLOADED: Final = ("liqo.io/managed-by", "shadowpod")
_ORIGIN: Final = "offloading.liqo.io/origin"  # its value is that cluster's id


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """How much of a resource is never shared: a share of the capacity, and an amount on top."""

    share: Fraction = Fraction(0)
    amount: Quantity = _ZERO

    def of(self, name: str, there: Quantity) -> Quantity:
        """The amount to keep of this capacity; rounded up, because half a device cannot be kept."""
        if not self.share:
            return self.amount
        part = there.value * self.share
        kept = Quantity(f"{ceil(part * 1000)}m") if name == "cpu" else Quantity(ceil(part))
        return kept + self.amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for counting. ``tolerated`` are keys of taints that the pods of other clusters tolerate."""

    margins: Mapping[str, Margin] = field(default_factory=dict)
    only: frozenset[str] = frozenset()  # share only these resources; empty: all that nodes have
    tolerated: frozenset[str] = frozenset()


def counts(node: Node, rules: Rules) -> bool:
    """Whether pods of other clusters can run on a node: it is ready, schedulable, and not virtual.

    A virtual node belongs to another cluster, which shares those resources itself.
    """
    if not node.ready or node.unschedulable or node.deleting:
        return False
    if any(node.labels.get(key) == value for key, value in _VIRTUAL_LABELS.items()):
        return False
    repelling = {taint.key for taint in node.taints if taint.effect in _REPELLING}
    return _VIRTUAL_TAINT not in repelling and repelling <= rules.tolerated


def measure(nodes: Iterable[Node], pods: Iterable[PodLoad], rules: Rules | None = None) -> Heartbeat:
    """Sums up a cluster. A pod counts while it is bound to a counted node and has not ended.

    ``offloaded_by`` lacks pods whose cluster is unknown.
    """
    rules = rules or Rules()
    counted = {node.name: node for node in nodes if counts(node, rules)}
    asked: dict[str, dict[str, Quantity]] = defaultdict(dict)
    offloaded: dict[str, Quantity] = {}
    by_origin: dict[str, dict[str, Quantity]] = defaultdict(dict)
    for pod in pods:
        if pod.node in counted and pod.phase not in _ENDED:
            taken = {**pod.requests, "pods": _ONE}
            _add(asked[pod.node], taken)
            if _is_offloaded(pod):
                _add(offloaded, taken)
                if CLUSTER_ID.fullmatch(origin := pod.labels.get(_ORIGIN, "")):
                    _add(by_origin[origin], taken)
    allocatable: dict[str, Quantity] = {}
    free: dict[str, Quantity] = {}
    for name, node in counted.items():
        _add(allocatable, node.allocatable)
        left = {key: amount - asked[name].get(key, _ZERO) for key, amount in node.allocatable.items()}
        _add(free, {key: max(amount, _ZERO) for key, amount in left.items()})
    kept = {key: rules.margins[key].of(key, there) for key, there in allocatable.items() if key in rules.margins}
    return Heartbeat(
        allocatable=_without(allocatable, kept, rules),
        free=_without(free, kept, rules),
        offloaded=_of_shared(offloaded, allocatable, rules),
        offloaded_by={origin: _of_shared(taken, allocatable, rules) for origin, taken in by_origin.items()},
    )


def _of_shared(taken: Resources, allocatable: Resources, rules: Rules) -> Resources:
    return {key: amount for key, amount in taken.items() if _is_shared(key, rules) and key in allocatable}


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity]) -> None:
    for key, amount in more.items():
        total[key] = total[key] + amount if key in total else amount


def _without(total: Mapping[str, Quantity], kept: Mapping[str, Quantity], rules: Rules) -> dict[str, Quantity]:
    shared = {key: amount for key, amount in total.items() if _is_shared(key, rules)}
    return {key: max(amount - kept[key], _ZERO) if key in kept else amount for key, amount in shared.items()}


def _is_shared(name: str, rules: Rules) -> bool:
    return name in rules.only if rules.only else name in _PLAIN or "/" in name


def _is_offloaded(pod: PodLoad) -> bool:
    key, value = _OFFLOADED
    return pod.labels.get(key) == value or _ORIGIN in pod.labels
