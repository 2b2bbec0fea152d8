"""Real nodes against the template of their group: what the autoscaler plans with must be what it gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Picture
from cloudgraft.engine.nodes.node_facts import SETTLED, is_own_label, is_passing
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint

__all__ = ["check"]

# The least of what is promised that a node may have. Firmware and kernel keep some of the memory for themselves.
_MEMORY: Final = Fraction(94, 100)
_LESS: Final = Fraction(98, 100)


def check(picture: Picture) -> Iterator[Finding]:
    """Every ready node of a machine of ours; each difference once for its group, with the node that shows it."""
    told: set[tuple[str, str, str]] = set()
    differing: dict[str, str] = {}
    for group, nodes in _nodes_of_groups(picture).items():
        for node in nodes:
            for finding, key in _differences(group, node, nodes, picture):
                differing.setdefault(group, node.name)
                if (group, finding.entry.id, key) not in told:
                    told.add((group, finding.entry.id, key))
                    yield finding
    yield from _cached(picture, differing)


def _nodes_of_groups(picture: Picture) -> Mapping[str, Sequence[Node]]:
    """Only those that have been there for a while: some labels, devices and taints come and go late."""
    found: dict[str, list[Node]] = defaultdict(list)
    cluster, server = picture.cluster, picture.server
    if cluster is None or server is None:
        return found
    groups = {machine.provider_id: machine.group for machine in server.machines if machine.provider_id}
    for node in cluster.nodes or ():
        is_settled = picture.now.timestamp() - node.created_at >= SETTLED
        if node.ready and is_settled and node.provider_id in groups:
            found[groups[node.provider_id]].append(node)
    return found


def _differences(group: str, node: Node, others: Sequence[Node], picture: Picture) -> Iterator[tuple[Finding, str]]:
    """Each with what it is about."""
    declared = {one.id: one.declared for one in picture.settings.groups} if picture.settings else {}
    served = picture.templates.get(group)
    template = served or declared.get(group)
    if template is None:
        return
    where = f"group {group}, node {node.name}"
    yield from _labels(template, node, where)
    yield from _missing_taints(template, node, where)
    # What the engine has learned from real nodes is in the template that it serves, and not in the file.
    is_learned = served is None and picture.settings is not None and picture.settings.node_care is not None
    if not is_learned:
        yield from _unknown_taints(template, others, _startup_taints(picture), where)
    yield from _resources(template, node, where)


def _startup_taints(picture: Picture) -> set[str]:
    """Those that an autoscaler was told to look through."""
    names = ("startup-taint", "status-taint", "ignore-taint")
    return {key for autoscaler in picture.autoscalers for name in names for key in autoscaler.flags.all(name)}


def _labels(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    for key, value in template.labels.items():
        if not is_own_label(key) and node.labels.get(key) != value:
            has = f"has {key}={node.labels[key]}" if key in node.labels else "has none of that key"
            what = f"the template has the label {key}={value}, the node {has}"
            fix = f"kubernetes.labelNodes: true, or --node-labels={key}={value} for the kubelet"
            yield found("template-label", where=where, what=what, fix=fix), key


def _missing_taints(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    real = {_key(taint) for taint in node.taints}
    for taint in template.taints:
        if _key(taint) not in real:
            fix = f"--register-with-taints={_text(taint)} for the kubelet, or remove it from template.taints"
            what = f"the template has the taint {_text(taint)}, the node has not"
            yield found("template-taint-missing", where=where, what=what, fix=fix), taint.key


def _unknown_taints(
    template: NodeTemplate, nodes: Sequence[Node], passing: Collection[str], where: str
) -> Iterator[tuple[Finding, str]]:
    """Those of all nodes of a group: one of several may be somebody's work. One that only advises keeps no pod away."""
    wanted = {_key(taint) for taint in template.taints}
    for taint in nodes[0].taints:
        is_told = _key(taint) in wanted or is_passing(taint) or taint.key in passing
        if is_told or taint.effect == "PreferNoSchedule":
            continue
        if all(_key(taint) in map(_key, node.taints) for node in nodes):
            fix = f"template.taints: [{{key: {taint.key}, value: {taint.value!r}, effect: {taint.effect}}}]"
            what = f"the node has the taint {_text(taint)}, the template has not"
            yield found("template-taint-unknown", where=where, what=what, fix=fix), taint.key


def _resources(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    """Pods are placed by what is allocatable; the rest counts only where nothing is said of that."""
    capacity = {name: amount for name, amount in template.capacity.items() if name not in template.allocatable}
    for side, promised, real in (
        ("allocatable", template.allocatable, node.allocatable),
        ("capacity", capacity, node.capacity),
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
    return {name: pair for name, pair in pairs.items() if pair[1].value < pair[0].value * _share(name)}


def _share(name: str) -> Fraction:
    return _MEMORY if name == "memory" else _LESS


def _cached(picture: Picture, differing: Mapping[str, str]) -> Iterator[Finding]:
    for autoscaler in picture.autoscalers:
        if differing and not autoscaler.flags.is_set("node-info-cache-expire-time"):
            shown = ", ".join(f"{group} (by {node})" for group, node in sorted(differing.items()))
            yield found("template-cache", where=autoscaler.where, what=f"it may plan by real nodes of: {shown}")


def _key(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
