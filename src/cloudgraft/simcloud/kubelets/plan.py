"""Decides what the kubelets of all machines have to do now. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cloudgraft.kube.objects import Node, Pod
from cloudgraft.sdk.driver import MachineState
from cloudgraft.simcloud.kubelets.objects import LEASE_SECONDS, node_address
from cloudgraft.simcloud.records import SimMachine

_RENEW_AFTER: Final = 10.0  # seconds; a lease lasts four times as long
# The API server puts the first on every new node, and a controller removes it when the node is ready. There may be
# no such controller, and then nothing would ever be scheduled there.
_TAINTS_OF_UNREADY: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})

# A machine that shuts down ends its pods in an orderly way; a dead one does nothing more.
_FINISHING: Final = frozenset({MachineState.RUNNING, MachineState.DELETING})


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishPod:
    """End a pod that is being deleted, or whose machine is gone: no other component does."""

    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPod:
    """Report that a bound pod runs."""

    pod: Pod
    host_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNode:
    """Remove the node of a machine that is gone (R57), and its lease."""

    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNode:
    """Register a machine that has booted."""

    machine: SimMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReady:
    """Report that a node is healthy again, such as after our own restart."""

    node: Node
    machine: SimMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLost:
    """Report that a node was silent for too long."""

    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftTaint:
    """Remove the not-ready taint from a node that is ready."""

    node: Node
    position: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLease:
    """Renew a node's lease, or make it."""

    node: Node


@dataclass(slots=True)
class Memory:
    """Earlier actions that later decisions need."""

    made: set[str] = field(default_factory=set)  # the providerID of every machine that this cloud ever made
    leases: dict[str, float] = field(default_factory=dict)  # node -> when its lease was last renewed by us
    removed: set[str] = field(default_factory=set)  # nodes that we removed: pods may still be bound to them


Action = FinishPod | RunPod | RemoveNode | CreateNode | ReportReady | ReportLost | LiftTaint | KeepLease


def key_of(action: Action) -> str:
    """The key of an action: stable when it is decided again, different for another object of the same name."""
    match action:
        case FinishPod(pod=pod) | RunPod(pod=pod):
            about = f"{pod.key} {pod.uid}"
        case CreateNode(machine=machine):
            about = machine.provider_id
        case _:
            about = f"{action.node.name} {action.node.uid}"
    return f"{type(action).__name__} {about}"


def desired(
    machines: Iterable[SimMachine],
    nodes: Mapping[str, Node],
    pods: Iterable[Pod],
    memory: Memory,
    now: float,
) -> list[Action]:
    """All actions that are needed now, the most urgent first.

    ``machines`` are all that exist, the oldest first; ``nodes`` are all of the cluster, by name. No node is ever
    touched that is not of a machine in ``memory.made``.
    """
    present = {machine.provider_id: machine for machine in machines}
    ours = {name: node for name, node in nodes.items() if node.provider_id in memory.made}
    bereft = memory.removed - nodes.keys()
    actions: list[Action] = []
    for node in ours.values():
        actions += _node(node, present.get(node.provider_id), memory.leases.get(node.name, 0.0), now)
    # Nodes that go, go before their pods: otherwise a DaemonSet would put new ones there.
    actions.sort(key=lambda action: not isinstance(action, RemoveNode))
    actions += _pods(pods, ours, present, bereft)
    actions += _newcomers(present.values(), ours)
    actions += _leases(ours, present, memory.leases, now)
    return actions


def _pods(
    pods: Iterable[Pod], ours: Mapping[str, Node], present: Mapping[str, SimMachine], bereft: Container[str]
) -> Iterator[Action]:
    for pod in pods:
        node = ours.get(pod.node)
        if node is None:
            if pod.node in bereft:
                yield FinishPod(pod=pod)
            continue
        machine = present.get(node.provider_id)
        if machine is None or (pod.deleting and machine.state in _FINISHING):
            yield FinishPod(pod=pod)
        elif pod.phase == "Pending" and not pod.deleting and machine.state is MachineState.RUNNING:
            yield RunPod(pod=pod, host_address=node_address(machine.machine_id))


def _node(node: Node, machine: SimMachine | None, renewed_at: float, now: float) -> Iterator[Action]:
    if machine is None:
        if not node.deleting:  # else it waits for another component's finalizer
            yield RemoveNode(node=node)
    elif machine.state is not MachineState.RUNNING:
        if node.ready and now - renewed_at >= LEASE_SECONDS:
            yield ReportLost(node=node)
    elif not node.ready:
        yield ReportReady(node=node, machine=machine)
    else:
        stale = ((i, taint.key) for i, taint in enumerate(node.taints) if taint.key in _TAINTS_OF_UNREADY)
        for position, key in stale:
            yield LiftTaint(node=node, position=position, key=key)
            break  # the positions of the others change with it


def _newcomers(machines: Iterable[SimMachine], ours: Mapping[str, Node]) -> Iterator[Action]:
    """One node per name: of two machines of the same name the first has it, as long as it is there."""
    taken = set(ours)
    for machine in machines:
        if machine.state is MachineState.RUNNING and machine.name not in taken:
            taken.add(machine.name)
            yield CreateNode(machine=machine)


def _leases(
    ours: Mapping[str, Node], present: Mapping[str, SimMachine], leases: Mapping[str, float], now: float
) -> list[KeepLease]:
    """Leases that are due, the oldest first, so that none expires while there are too many to renew."""
    due = [
        (leases.get(node.name, 0.0), node)
        for node in ours.values()
        if (machine := present.get(node.provider_id)) is not None
        and machine.state is MachineState.RUNNING
        and now - leases.get(node.name, 0.0) >= _RENEW_AFTER
    ]
    return [KeepLease(node=node) for _, node in sorted(due, key=lambda entry: entry[0])]
