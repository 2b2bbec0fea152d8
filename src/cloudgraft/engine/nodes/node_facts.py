"""Learns capacity, allocatable, labels and taints of new nodes from nodes that have joined. Pure.

The template must not flap, and must not promise what only one node happens to have. So:

- The engine learns from settled nodes (:data:`SETTLED`). It uses younger ones only while there are no others, because
  some labels and devices come late. Only settled nodes change facts that were learned from settled nodes.
- Of each resource the smallest amount among the latest nodes counts. A smaller amount is learned at once, a larger one
  only when it is larger by :data:`MORE`: nodes of one kind differ by a few pages of memory.
- A node without devices (``nvidia.com/gpu``) does not count where others have or had some: device plugins register them
  late, disappear briefly at every restart of a kubelet, and may find devices broken. A new node has them.
- A label counts when all nodes have it with the same value. A key whose values differed is never learned again.
- A taint counts when all settled nodes have it when the group is first learned. A later taint was set by somebody, and
  is not learned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from cloudgraft.json_codec import AMOUNTS, FLAG, TAINTS, TEXTS, Codec, Form, Key, record
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.store.records import LearnedRecord

SETTLED: Final = 600.0  # seconds
MORE: Final = Fraction(102, 100)

HOSTNAME: Final = "kubernetes.io/hostname"
# The autoscaler derives these from the stable ones by itself (R69).
_OLD_NAMES: Final = ("beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
# Taints that come and go with a node's state, or with operations on it (R70).
_PASSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)

Resources = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The common facts of a group's nodes."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Resources = field(default_factory=dict)
    allocatable: Resources = field(default_factory=dict)
    varying: frozenset[str] = frozenset()  # keys of labels whose values differed between nodes
    is_settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A ready node, and the names that identify only it."""

    node: Node
    names: Collection[str]


def learn(old: Facts | None, specimens: Sequence[Specimen], now: float) -> Facts | None:
    """The facts after a look at these nodes; the same object as before when there is nothing new."""
    settled = [one for one in specimens if now - one.node.created_at >= SETTLED]
    teachers = settled or specimens
    if not teachers or (old is not None and old.is_settled and not settled):
        return old
    before = old or Facts()
    labels = [_shared(one) for one in teachers]
    varying = before.varying | _different(labels, is_certain=bool(settled))
    capacity = _least(before.capacity, [one.node.capacity for one in teachers])
    allocatable = _least(before.allocatable, [one.node.allocatable for one in teachers])
    learned = Facts(
        labels={
            key: value
            for key, value in labels[0].items()
            if key not in varying and all(other.get(key) == value for other in labels)
        },
        taints=_taints(before, settled),
        capacity=capacity,
        # Each amount was chosen by itself; together they must still be consistent.
        allocatable={name: min(amount, capacity.get(name, amount)) for name, amount in allocatable.items()},
        varying=varying,
        is_settled=bool(settled),
    )
    return old if learned == old else learned


def is_own_label(key: str) -> bool:
    """Whether a label identifies the node, or is the deprecated form of another label."""
    return key == HOSTNAME or key.startswith(_OLD_NAMES)


def is_passing(taint: Taint) -> bool:
    """Whether a taint is temporary, so that a new node may or may not have it."""
    return taint.key.startswith(_PASSING)


def _shared(specimen: Specimen) -> dict[str, str]:
    """The labels of a node that other nodes may share."""
    names = {name for name in specimen.names if name}
    return {k: v for k, v in specimen.node.labels.items() if not is_own_label(k) and v not in names}


def _different(labels: Sequence[Mapping[str, str]], *, is_certain: bool) -> frozenset[str]:
    """Keys with several values; with ``is_certain``, also keys that some nodes lack: those will not come late."""
    values: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for one in labels:
        for key, value in one.items():
            values.setdefault(key, set()).add(value)
            counts[key] = counts.get(key, 0) + 1
    return frozenset(
        key for key, found in values.items() if len(found) > 1 or (is_certain and counts[key] < len(labels))
    )


def _taints(before: Facts, settled: Sequence[Specimen]) -> tuple[Taint, ...]:
    if not settled:
        return before.taints
    common = [taint for taint in settled[0].node.taints if not is_passing(taint)]
    common = [taint for taint in common if all(taint in one.node.taints for one in settled)]
    return tuple(taint for taint in common if not before.is_settled or taint in before.taints)


def _least(before: Resources, nodes: Sequence[Resources]) -> dict[str, Quantity]:
    """The smallest amount of each resource that all nodes have; the former one while this is hardly larger."""
    found = {name: amount for name, amount in before.items() if _is_device(name)}
    for name in dict.fromkeys(name for node in nodes for name in node):
        amounts = [node[name] for node in nodes if name in node and not (_is_device(name) and node[name].value == 0)]
        if amounts and (_is_device(name) or len(amounts) == len(nodes)):
            least, known = min(amounts), before.get(name)
            is_same = known is not None and known.value <= least.value <= known.value * MORE
            found[name] = known if known is not None and is_same else least
    return found


def _is_device(resource: str) -> bool:
    """Whether the resource has a domain, which Kubernetes' own resources do not."""
    return "/" in resource


# -- in the journal ----------------------------------------------------------------------------------------------------

_VARYING: Final[Form[frozenset[str]]] = Form(TEXTS.then(frozenset), lambda names: dict.fromkeys(sorted(names), ""))
_FACTS: Final = Codec(
    record(
        Facts,
        labels=TEXTS,
        taints=TAINTS,
        capacity=AMOUNTS,
        allocatable=AMOUNTS,
        varying=_VARYING,
        is_settled=Key(FLAG, "settled"),
    )
)


def facts_to_json(facts: Facts) -> dict[str, object]:
    """The facts as values that JSON has."""
    return _FACTS.write(facts)


def facts_from_json(learned: LearnedRecord) -> Facts | None:
    """The facts that were written, None for none yet; InvalidArgumentError says what of them cannot be read."""
    what = f"what the journal has learned of the group {learned.group[:80]!r}"
    return _FACTS.read(learned.facts, what) if learned.facts else None
