"""Nodes against machines: the providerIDs above all, for a node without the right one costs its machine its life."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Cluster, Machine, Picture, Server
from cloudgraft.kube.objects import Node

__all__ = ["check"]

_UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_ROLES: Final = ("control-plane", "master", "etcd")
# In seconds. Until then it is the usual course of things that ...
_PATIENCE: Final = 600.0  # a running machine has no node; longer where the engine gives it longer
_WRITING: Final = 60.0  # a node has no providerID
_WAITING: Final = 300.0  # a node waits for a cloud-controller-manager
_BEFORE: Final = 600.0  # a node registers before its machine is seen to run
_OTHER_CONTROLLERS: Final = ("k3s://", "rke2://")  # their servers write such providerIDs, unless told not to


def check(picture: Picture) -> Iterator[Finding]:
    """Nodes, machines, and who else looks after nodes."""
    cluster = picture.cluster
    if cluster is None:
        return
    yield from _controllers(picture, cluster)
    for right, feature in cluster.missing_rights.items():
        yield found("right-missing", where="cloudgraft's account", what=f"it may not {right}, which {feature} needs")
    for node in cluster.nodes or ():
        is_waiting = any(taint.key == _UNINITIALIZED for taint in node.taints)
        if is_waiting and _age(node, picture) > _WAITING:
            what = f"taint {_UNINITIALIZED}; {', '.join(cluster.cloud_controllers) or 'no manager'} was seen"
            yield found("node-waits-for-cloud-controller", where=f"node {node.name}", what=what)
    if cluster.nodes is not None and picture.server is not None:
        yield from _twice(cluster.nodes)
        machines = [machine for machine in picture.server.machines if machine.state == "running"]
        yield from _machines(machines, cluster.nodes, picture)
        settled = [node for node in cluster.nodes if _age(node, picture) > _PATIENCE or node.ready]
        yield from _left_behind(picture.server, settled)


def _age(node: Node, picture: Picture) -> float:
    """In seconds; of one that does not say since when it is there, more than anybody asks for."""
    return picture.now.timestamp() - node.created_at


def _controllers(picture: Picture, cluster: Cluster) -> Iterator[Finding]:
    care = picture.settings.node_care if picture.settings else None
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


def _machines(machines: Sequence[Machine], nodes: Sequence[Node], picture: Picture) -> Iterator[Finding]:
    ids = {node.provider_id for node in nodes}
    ours = {machine.provider_id for machine in machines}
    named = {node.name: node for node in nodes}
    free = [node for node in nodes if node.provider_id not in ours]
    without: list[Machine] = []
    patience = max(_PATIENCE, picture.settings.join_deadline.total_seconds() if picture.settings else 0.0)
    for machine in machines:
        if not machine.provider_id or machine.provider_id in ids:
            continue
        node = named.get(machine.name)
        if node is not None and not node.provider_id and _age(node, picture) < _WRITING:
            continue
        finding = _judged(machine, node) if node is not None else _resembles(machine, free)
        if finding is not None:
            yield finding
        elif machine.state_age > patience:
            without.append(machine)
    yield from _without_nodes(without, [node for node in free if not node.provider_id], picture)


def _judged(machine: Machine, node: Node) -> Finding:
    """A node that is named like the machine, and has another providerID or none."""
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
    """How two providerIDs differ, if they look like those of one machine."""
    if wanted.casefold() == given.casefold():
        return "provider-id-case"
    ends = [text.rstrip("/").rpartition("/")[2].casefold() for text in (wanted, given)]
    is_telling = len(ends[0]) > 3 and not ends[0].isdigit()  # a number may be one of several clouds
    return "provider-id-prefix" if ends[0] == ends[1] and is_telling else None


def _without_nodes(without: Sequence[Machine], nameless: Sequence[Node], picture: Picture) -> Iterator[Finding]:
    """Machines whose node nobody knows; nodes that nobody knows may be theirs."""
    care = picture.settings.node_care if picture.settings else None
    by_name_only = care is not None and care.sets_provider_id and care.match_by == ("name",)
    oldest = max((machine.state_age for machine in without), default=0.0)
    strange = [node for node in nameless if not _is_control_plane(node)]
    strange = [node for node in strange if not node.created_at or _age(node, picture) < oldest + _BEFORE]
    if without and strange and by_name_only:
        names = ", ".join(sorted(node.name for node in strange)[:5])
        what = f"{names} without providerID; machines without node: {', '.join(one.name for one in without[:5])}"
        yield found("nodes-not-named-like-machines", where="kubernetes.matchBy", what=what)
    for machine in without:
        what = f"machine {machine.name} ({machine.provider_id}) has been running for {machine.state_age / 60:.0f} min"
        yield found("node-missing", where=f"group {machine.group}", what=what)


def _left_behind(server: Server, nodes: Sequence[Node]) -> Iterator[Finding]:
    """A node that is not ready, of no machine that we know, and named or made as only ours are."""
    known = {machine.provider_id.casefold() for machine in server.machines}
    names = {machine.name for machine in server.machines}
    strange = [node for node in nodes if node.provider_id and node.provider_id.casefold() not in known]
    # Where others of the same make do well, as hand-made ones of the same cloud, the make tells nothing.
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
