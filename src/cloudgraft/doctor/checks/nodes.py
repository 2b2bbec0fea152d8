"""Nodes against machines: the providerIDs above all, for a node without the right one costs its machine its life."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cloudgraft.doctor.catalog import found
from cloudgraft.doctor.findings import Finding
from cloudgraft.doctor.picture import Cluster, Machine, Picture
from cloudgraft.kube.objects import Node

__all__ = ["check"]

_UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_PATIENCE: Final = 600.0  # seconds that a running machine may be without a node before it is told


def check(picture: Picture) -> Iterator[Finding]:
    """Nodes, machines, and who else looks after nodes."""
    cluster = picture.cluster
    if cluster is None:
        return
    yield from _controllers(picture, cluster)
    for right, feature in cluster.missing_rights.items():
        yield found("right-missing", where="cloudgraft's account", what=f"it may not {right}, which {feature} needs")
    for node in cluster.nodes or ():
        if any(taint.key == _UNINITIALIZED for taint in node.taints) and not cluster.cloud_controllers:
            yield found("node-waits-for-cloud-controller", where=f"node {node.name}", what=f"taint {_UNINITIALIZED}")
    if cluster.nodes is not None and picture.server is not None:
        yield from _twice(cluster.nodes)
        machines = [machine for machine in picture.server.machines if machine.state == "running"]
        yield from _machines(machines, cluster.nodes, picture)
        yield from _left_behind(picture.server.machines, cluster.nodes)


def _controllers(picture: Picture, cluster: Cluster) -> Iterator[Finding]:
    care = picture.settings.node_care if picture.settings else None
    if care is not None and care.sets_provider_id and cluster.cloud_controllers:
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
    for machine in machines:
        if not machine.provider_id or machine.provider_id in ids:
            continue
        node = named.get(machine.name)
        finding = _judged(machine, node) if node is not None else _resembles(machine, free)
        if finding is not None:
            yield finding
        elif machine.state_age > _PATIENCE:
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
    return "provider-id-prefix" if ends[0] == ends[1] and len(ends[0]) > 3 else None


def _without_nodes(without: Sequence[Machine], nameless: Sequence[Node], picture: Picture) -> Iterator[Finding]:
    """Machines whose node nobody knows; nodes that nobody knows may be theirs."""
    care = picture.settings.node_care if picture.settings else None
    by_name_only = care is not None and care.sets_provider_id and care.match_by == ("name",)
    if without and nameless and by_name_only:
        names = ", ".join(sorted(node.name for node in nameless)[:5])
        what = f"{names} without providerID; machines without node: {', '.join(one.name for one in without[:5])}"
        yield found("nodes-not-named-like-machines", where="kubernetes.matchBy", what=what)
    for machine in without:
        what = f"machine {machine.name} ({machine.provider_id}) has been running for {machine.state_age / 60:.0f} min"
        yield found("node-missing", where=f"group {machine.group}", what=what)


def _left_behind(machines: Sequence[Machine], nodes: Sequence[Node]) -> Iterator[Finding]:
    """A node that is not ready, of the same make as ours, and of no machine that we know."""
    known = {machine.provider_id for machine in machines}
    makes = _makes(known)
    running = {machine.provider_id.casefold() for machine in machines}
    for node in nodes:
        make = node.provider_id.rpartition("/")[0]
        is_unknown = node.provider_id not in known and node.provider_id.casefold() not in running
        if node.provider_id and is_unknown and makes.get(make) and not node.ready:
            what = f"{node.provider_id} is no machine of ours, and the node is not ready"
            yield found(
                "node-left-behind", where=f"node {node.name}", what=what, fix=f"kubectl delete node {node.name}"
            )


def _makes(provider_ids: set[str]) -> Mapping[str, int]:
    makes: dict[str, int] = defaultdict(int)
    for provider_id in provider_ids:
        if make := provider_id.rpartition("/")[0]:
            makes[make] += 1
    return makes
