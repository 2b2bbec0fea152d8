"""Decides what to change on nodes. Pure: from machines, nodes, and which node is which machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.joining.match import Problem, ProblemKind, Way
from cloudgraft.kube.objects import Node

_UNTIL_REMOVED: Final = 60.0  # seconds; Kubernetes may not yet have noticed that the kubelet of a Ready node is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The configured changes to nodes of the cluster."""

    set_provider_id: bool = True
    label_nodes: bool = True
    remove_nodes: bool = True
    match_by: frozenset[Way] = frozenset({Way.NAME})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """A change to the node of a machine."""

    node: Node
    machine: str

    @property
    def key(self) -> str:
        """Unique among the changes of one decision."""
        return f"{type(self).__name__} {self.node.uid or self.node.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateNode(NodeChange):
    """Add what a node lacks: a providerID, unless that is empty, and labels."""

    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode(NodeChange):
    """Remove the Node object of a machine that is gone (R57)."""


def node_changes(
    claims: Sequence[Claim],
    nodes: Mapping[str, Node],
    settings: ClusterSettings,
    *,
    gone_since: Mapping[str, float],
    now: float,
) -> tuple[list[NodeChange], list[Problem]]:
    """All changes to make, and problems. ``nodes`` are those of the machines, by the machines' names."""
    found: list[NodeChange] = []
    problems: list[Problem] = []
    alive = {claim.provider_id for claim in claims if claim.stage is not Stage.GONE and claim.provider_id}
    for claim in claims:
        node = nodes.get(claim.name)
        if node is None or node.deleting or claim.is_observed:
            continue
        if claim.stage is Stage.WANTED:
            if node.provider_id and claim.labels.items() <= node.labels.items():
                continue  # nearly all of them, nearly always
            change = _update(claim, node, settings)
            found += [change] if change.provider_id or change.labels else []
            problems += _other_labels(claim, node) if settings.label_nodes else []
        elif claim.stage is Stage.GONE and settings.remove_nodes and node.provider_id not in alive:
            is_due = not node.ready or now - gone_since.get(claim.name, now) >= _UNTIL_REMOVED
            found += [RemoveNode(node=node, machine=claim.name)] if is_due else []
    return found, problems


def _update(claim: Claim, node: Node, settings: ClusterSettings) -> UpdateNode:
    """Adds a providerID only where there is none, and a label only where there is none of that key."""
    writes_id = settings.set_provider_id and claim.sets_provider_id and not node.provider_id
    missing = {key: value for key, value in claim.labels.items() if key not in node.labels}
    return UpdateNode(
        node=node,
        machine=claim.name,
        provider_id=claim.provider_id if writes_id else "",
        labels=missing if settings.label_nodes else {},
    )


def _other_labels(claim: Claim, node: Node) -> list[Problem]:
    return [
        Problem(
            kind=ProblemKind.OTHER_LABEL,
            node=node.name,
            machine=claim.name,
            message=f"node {node.name} has the label {key}={node.labels[key]}, but group {claim.group} promises "
            f"{key}={value}: the autoscaler counts on pods that the scheduler will not put there. Correct the label in "
            "the template of the group, or on the node",
        )
        for key, value in claim.labels.items()
        if node.labels.get(key, value) != value
    ]
