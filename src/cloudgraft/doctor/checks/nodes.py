"""Checks real nodes against machines and against the templates of their groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from cloudgraft.doctor.findings import Finding, found
from cloudgraft.doctor.inputs import Cluster, Inputs, Machine, Server
from cloudgraft.engine.nodes.node_facts import SETTLED, is_own_label, is_passing
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeTemplate, Taint

# -- nodes -------------------------------------------------------------------------------------------------------------
# Compares nodes with machines: the providerIDs above all, because the machine of a node with a wrong one is deleted.


_UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_ROLES: Final = ("control-plane", "master", "etcd")
# In seconds. Until then it is normal that ...
_PATIENCE: Final = 600.0  # a running machine has no node; longer where the engine gives it longer
_WRITING: Final = 60.0  # a node has no providerID
_WAITING: Final = 300.0  # a node waits for a cloud-controller-manager
_BEFORE: Final = 600.0  # a node registers before its machine is listed as running
_OTHER_CONTROLLERS: Final = ("k3s://", "rke2://")  # their servers write such providerIDs by default


def check(inputs: Inputs) -> Iterator[Finding]:
    """Checks nodes, machines, and other controllers of nodes."""
    cluster = inputs.cluster
    if cluster is None:
        return
    yield from _controllers(inputs, cluster)
    for right, feature in cluster.missing_rights.items():
        yield found("right-missing", where="cloudgraft's account", what=f"it may not {right}, which {feature} needs")
    for node in cluster.nodes or ():
        is_waiting = any(taint.key == _UNINITIALIZED for taint in node.taints)
        if is_waiting and _age(node, inputs) > _WAITING:
            what = f"taint {_UNINITIALIZED}; {', '.join(cluster.cloud_controllers) or 'no manager'} was seen"
            yield found("node-waits-for-cloud-controller", where=f"node {node.name}", what=what)
    if cluster.nodes is not None and inputs.server is not None:
        yield from _twice(cluster.nodes)
        machines = [machine for machine in inputs.server.machines if machine.state == "running"]
        yield from _machines(machines, cluster.nodes, inputs)
        settled = [node for node in cluster.nodes if _age(node, inputs) > _PATIENCE or node.ready]
        yield from _left_behind(inputs.server, settled)


def _age(node: Node, inputs: Inputs) -> float:
    """The age in seconds; for a node without a creation time, larger than any limit."""
    return inputs.now.timestamp() - node.created_at


def _controllers(inputs: Inputs, cluster: Cluster) -> Iterator[Finding]:
    care = inputs.settings.node_care if inputs.settings else None
    is_set_by_us = care is not None and care.sets_provider_id and not care.leaves_provider_ids
    if is_set_by_us and cluster.cloud_controllers:
        what = f"kubernetes.setProviderID is true, and there is {', '.join(cluster.cloud_controllers)}"
        yield found("two-set-provider-ids", where=cluster.cloud_controllers[0], what=what)


def _twice(nodes: Sequence[Node]) -> Iterator[Finding]:
    counted = Counter(node.provider_id for node in nodes if node.provider_id)
    for provider_id, count in counted.items():
        if count > 1:
            names = " and ".join(node.name for node in nodes if node.provider_id == provider_id)
            yield found("provider-id-twice", where=f"node {names}", what=f"both have {provider_id}")


def _machines(machines: Sequence[Machine], nodes: Sequence[Node], inputs: Inputs) -> Iterator[Finding]:
    ids = {node.provider_id for node in nodes}
    ours = {machine.provider_id for machine in machines}
    named = {node.name: node for node in nodes}
    free = [node for node in nodes if node.provider_id not in ours]
    without: list[Machine] = []
    patience = max(_PATIENCE, inputs.settings.join_deadline.total_seconds() if inputs.settings else 0.0)
    for machine in machines:
        if not machine.provider_id or machine.provider_id in ids:
            continue
        node = named.get(machine.name)
        if node is not None and not node.provider_id and _age(node, inputs) < _WRITING:
            continue
        finding = _judged(machine, node) if node is not None else _resembles(machine, free)
        if finding is not None:
            yield finding
        elif machine.state_age > patience:
            without.append(machine)
    yield from _without_nodes(without, [node for node in free if not node.provider_id], inputs)


def _judged(machine: Machine, node: Node) -> Finding:
    """The finding for a node with the name of the machine, and another providerID or none."""
    where, status = f"node {node.name}", f"cloudgraft status {machine.group}"
    what = f"machine {machine.name} of group {machine.group} is {machine.provider_id}, its node "
    if not node.provider_id:
        return found("provider-id-empty", where=where, what=f"{what}has none")
    id_ = _difference(machine.provider_id, node.provider_id) or "provider-id-other"
    fix = f"kubectl delete node {node.name}, and let it register with the providerID that {status} shows"
    if node.provider_id.startswith(_OTHER_CONTROLLERS):
        fix = f"start the servers of the cluster with --disable-cloud-controller; then {fix}"
    return found(id_, where=where, what=f"{what}is {node.provider_id}", fix=fix)


def _resembles(machine: Machine, free: Sequence[Node]) -> Finding | None:
    for node in free:
        if node.provider_id and _difference(machine.provider_id, node.provider_id):
            return _judged(machine, node)
    return None


def _difference(wanted: str, given: str) -> str | None:
    """The difference of two providerIDs, if they look like those of one machine."""
    if wanted.casefold() == given.casefold():
        return "provider-id-case"
    ends = [text.rstrip("/").rpartition("/")[2].casefold() for text in (wanted, given)]
    is_telling = len(ends[0]) > 3 and not ends[0].isdigit()  # a number may be one of several clouds
    return "provider-id-prefix" if ends[0] == ends[1] and is_telling else None


def _without_nodes(without: Sequence[Machine], nameless: Sequence[Node], inputs: Inputs) -> Iterator[Finding]:
    """Finds machines without a node, and nodes without a machine that may be theirs."""
    care = inputs.settings.node_care if inputs.settings else None
    by_name_only = care is not None and care.sets_provider_id and care.match_by == ("name",)
    oldest = max((machine.state_age for machine in without), default=0.0)
    strange = [node for node in nameless if not _is_control_plane(node)]
    strange = [node for node in strange if not node.created_at or _age(node, inputs) < oldest + _BEFORE]
    if without and strange and by_name_only:
        names = ", ".join(sorted(node.name for node in strange)[:5])
        what = f"{names} without providerID; machines without node: {', '.join(one.name for one in without[:5])}"
        yield found("nodes-not-named-like-machines", where="kubernetes.matchBy", what=what)
    for machine in without:
        what = f"machine {machine.name} ({machine.provider_id}) has been running for {machine.state_age / 60:.0f} min"
        yield found("node-missing", where=f"group {machine.group}", what=what)


def _left_behind(server: Server, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Finds nodes that are not ready, match no known machine, and have a name or providerID as only ours do."""
    known = {machine.provider_id.casefold() for machine in server.machines}
    names = {machine.name for machine in server.machines}
    strange = [node for node in nodes if node.provider_id and node.provider_id.casefold() not in known]
    # Where other nodes of the same kind are ready, such as hand-made ones of the same cloud, the kind proves nothing.
    makes = {_make(provider_id) for provider_id in known} - {_make(node.provider_id) for node in strange if node.ready}
    for node in strange:
        is_named = bool(server.prefix) and node.name.startswith(server.prefix)
        is_ours = is_named or bool(makes & {_make(node.provider_id)} - {""})
        if is_ours and not node.ready and node.name not in names and not _is_control_plane(node):
            what = f"{node.provider_id} is no machine of ours, and the node is not ready"
            yield found(
                "node-left-behind", where=f"node {node.name}", what=what, fix=f"kubectl delete node {node.name}"
            )


def _make(provider_id: str) -> str:
    return provider_id.casefold().rpartition("/")[0]


def _is_control_plane(node: Node) -> bool:
    return any(f"node-role.kubernetes.io/{role}" in node.labels for role in _ROLES)


# -- templates ---------------------------------------------------------------------------------------------------------
# The autoscaler plans with the template, so real nodes must match it.


# The smallest share of the promised amount that a node may have. Firmware and kernel reserve some memory.
_MEMORY: Final = Fraction(94, 100)
_LESS: Final = Fraction(98, 100)


def check_templates(inputs: Inputs) -> Iterator[Finding]:
    """Checks every ready node of our machines; reports each difference once per group, with a node that shows it."""
    reported: set[tuple[str, str, str]] = set()
    differing: dict[str, str] = {}
    for group, nodes in _nodes_of_groups(inputs).items():
        for node in nodes:
            for finding, key in _differences(group, node, nodes, inputs):
                differing.setdefault(group, node.name)
                if (group, finding.entry.id, key) not in reported:
                    reported.add((group, finding.entry.id, key))
                    yield finding
    yield from _cached(inputs, differing)


def _nodes_of_groups(inputs: Inputs) -> Mapping[str, Sequence[Node]]:
    """Only nodes of some age: some labels, devices and taints appear or disappear late."""
    found: dict[str, list[Node]] = defaultdict(list)
    cluster, server = inputs.cluster, inputs.server
    if cluster is None or server is None:
        return found
    groups = {machine.provider_id: machine.group for machine in server.machines if machine.provider_id}
    for node in cluster.nodes or ():
        is_settled = inputs.now.timestamp() - node.created_at >= SETTLED
        if node.ready and is_settled and node.provider_id in groups:
            found[groups[node.provider_id]].append(node)
    return found


def _differences(group: str, node: Node, others: Sequence[Node], inputs: Inputs) -> Iterator[tuple[Finding, str]]:
    """Yields findings, each with its subject."""
    declared = {one.id: one.declared for one in inputs.settings.groups} if inputs.settings else {}
    served = inputs.templates.get(group)
    template = served or declared.get(group)
    if template is None:
        return
    where = f"group {group}, node {node.name}"
    yield from _labels(template, node, where)
    yield from _missing_taints(template, node, where)
    # The served template includes what the engine has learned from real nodes; the file does not.
    is_learned = served is None and inputs.settings is not None and inputs.settings.node_care is not None
    if not is_learned:
        yield from _unknown_taints(template, others, _startup_taints(inputs), where)
    yield from _resources(template, node, where)


def _startup_taints(inputs: Inputs) -> set[str]:
    """The taints that an autoscaler's flags make it ignore."""
    names = ("startup-taint", "status-taint", "ignore-taint")
    return {key for autoscaler in inputs.autoscalers for name in names for key in autoscaler.flags.all(name)}


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
    """Taints of all nodes of a group: a person may have set one of a single node. A soft taint keeps no pod away."""
    wanted = {_key(taint) for taint in template.taints}
    for taint in nodes[0].taints:
        is_declared = _key(taint) in wanted or is_passing(taint) or taint.key in passing
        if is_declared or taint.effect == "PreferNoSchedule":
            continue
        if all(_key(taint) in map(_key, node.taints) for node in nodes):
            fix = f"template.taints: [{{key: {taint.key}, value: {taint.value!r}, effect: {taint.effect}}}]"
            what = f"the node has the taint {_text(taint)}, the template has not"
            yield found("template-taint-unknown", where=where, what=what, fix=fix), taint.key


def _resources(template: NodeTemplate, node: Node, where: str) -> Iterator[tuple[Finding, str]]:
    """Compares allocatable resources, by which pods are placed; capacity counts only where there are none."""
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
    """Resources of which the node has noticeably less; none when the node's resources are unknown."""
    if not real:
        return {}
    pairs = {name: (wanted, real.get(name, Quantity(0))) for name, wanted in promised.items()}
    return {name: pair for name, pair in pairs.items() if pair[1].value < pair[0].value * _share(name)}


def _share(name: str) -> Fraction:
    return _MEMORY if name == "memory" else _LESS


def _cached(inputs: Inputs, differing: Mapping[str, str]) -> Iterator[Finding]:
    for autoscaler in inputs.autoscalers:
        if differing and not autoscaler.flags.is_set("node-info-cache-expire-time"):
            shown = ", ".join(f"{group} (by {node})" for group, node in sorted(differing.items()))
            yield found("template-cache", where=autoscaler.where, what=f"it may plan by real nodes of: {shown}")


def _key(taint: Taint) -> tuple[str, str, str]:
    return taint.key, taint.value, taint.effect


def _text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
