"""Real nodes against the template of their group: what the autoscaler plans with must be what it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Picture
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint

__all__ = ["check"]

_HOSTNAME: Final = "kubernetes.io/hostname"
# Those that the system or the autoscaler puts on and takes off again (R70).
_PASSING: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
)
_SLACK: Final = 100  # a hundredth less of a resource is what a kernel or a firmware takes


def check(picture: Picture) -> Iterator[Finding]:
    """Every ready node of a machine of ours; each difference once for its group, with the node that shows it."""
    told: set[tuple[str, str, str]] = set()
    differing: dict[str, str] = {}
    for group, node in _nodes_of_groups(picture):
        for finding, key in _differences(group, node, picture):
            differing.setdefault(group, node.name)
            if (group, finding.entry.id, key) not in told:
                told.add((group, finding.entry.id, key))
                yield finding
    yield from _cached(picture, differing)


def _nodes_of_groups(picture: Picture) -> Iterator[tuple[str, Node]]:
    cluster, server = picture.cluster, picture.server
    if cluster is None or server is None:
        return
    groups = {machine.provider_id: machine.group for machine in server.machines if machine.provider_id}
    for node in cluster.nodes or ():
        if node.ready and node.provider_id in groups:
            yield groups[node.provider_id], node


def _differences(group: str, node: Node, picture: Picture) -> Iterator[tuple[Finding, str]]:
    """Each with what it is about."""
    declared = {one.id: one.declared for one in picture.settings.groups} if picture.settings else {}
    served = picture.templates.get(group)
    template = served or declared.get(group)
    if template is None:
        return
    where = f"group {group}, node {node.name}"
    yield from _labels(template, node, where)
    yield from _taints(template, node, where)
    yield from _resources(template, node, where)


def _labels(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    for key, value in template.labels.items():
        if key != _HOSTNAME and node.labels.get(key) != value:
            has = f"has {key}={node.labels[key]}" if key in node.labels else "has none of that key"
            what = f"the template has the label {key}={value}, the node {has}"
            fix = f"kubernetes.labelNodes: true, or --node-labels={key}={value} for the kubelet"
            yield found("template-label", where=where, what=what, fix=fix), key


def _taints(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    wanted = {_key(taint): taint for taint in template.taints}
    real = {_key(taint): taint for taint in node.taints if not taint.key.startswith(_PASSING)}
    for key, taint in wanted.items():
        if key not in real:
            fix = f"--register-with-taints={_text(taint)} for the kubelet, or remove it from template.taints"
            what = f"the template has the taint {_text(taint)}, the node has not"
            yield found("template-taint-missing", where=where, what=what, fix=fix), taint.key
    for key, taint in real.items():
        if key not in wanted:
            fix = f"template.taints: [{{key: {taint.key}, value: {taint.value!r}, effect: {taint.effect}}}]"
            what = f"the node has the taint {_text(taint)}, the template has not"
            yield found("template-taint-unknown", where=where, what=what, fix=fix), taint.key


def _resources(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    for side, promised, real in (
        ("allocatable", template.allocatable, node.allocatable),
        ("capacity", template.capacity, node.capacity),
    ):
        for name, (wanted, given) in _smaller(promised, real).items():
            what = f"the template promises {wanted} of {name}, the node has {given} ({side})"
            fix = f"template.{side}: {{{name}: {given}}}"
            yield found("template-resource", where=where, what=what, fix=fix), name


def _smaller(promised: Mapping[str, Quantity], real: Mapping[str, Quantity]) -> dict[str, tuple[Quantity, Quantity]]:
    """What the node has noticeably less of; nothing when nothing is known of the node."""
    if not real:
        return {}
    pairs = {name: (wanted, real.get(name, Quantity(0))) for name, wanted in promised.items()}
    return {name: pair for name, pair in pairs.items() if pair[1].value * _SLACK < pair[0].value * (_SLACK - 1)}


def _cached(picture: Picture, differing: Mapping[str, str]) -> Iterator[Finding]:
    for autoscaler in picture.autoscalers:
        if differing and not autoscaler.flags.is_set("node-info-cache-expire-time"):
            shown = ", ".join(f"{group} (by {node})" for group, node in sorted(differing.items()))
            yield found("template-cache", where=autoscaler.where, what=f"it may plan by real nodes of: {shown}")


def _key(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
