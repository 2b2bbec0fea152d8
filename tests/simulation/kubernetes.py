"""A simulated Kubernetes: nodes register some time after their machine runs, and misbehave as planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cloudgraft.joining.claims import Claim, JoinedNode, Stage
from cloudgraft.joining.match import Matches, Problem, Rivals, Way, matched, rivals
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.driver import MachineState
from tests.simulation.cloud import SimCloud, SimMachine
from tests.simulation.determinism import EPOCH
from tests.simulation.loop import Host, VirtualLoop

_UNREADY_AFTER = 40.0  # seconds that a kubelet may be silent
_WAYS = (Way.NAME,)


@dataclass(slots=True, eq=False)
class SimNode:
    """A Node object, and the machine that registered it."""

    node: Node
    machine: SimMachine
    cloud: str
    unready_since: float | None = None

    @property
    def is_ready(self) -> bool:
        return self.node.ready


class SimKubernetes:
    """The nodes, and who watches them."""

    def __init__(self, loop: VirtualLoop, trace: Callable[[str, str], None]) -> None:
        self.nodes: dict[str, SimNode] = {}
        self.away_until = 0.0
        self.absences: list[tuple[float, float]] = []
        self._loop = loop
        self._trace = trace
        self._views: list[ClusterView] = []
        self._of: dict[SimMachine, list[str]] = {}  # names of nodes

    @property
    def is_away(self) -> bool:
        return self._loop.time() < self.away_until

    def go_away(self, until: float) -> None:
        """The API server cannot be reached until then."""
        self.absences.append((self._loop.time(), until))
        self.away_until = max(self.away_until, until)

    def seen_for(self, begin: float, end: float) -> float:
        """Seconds of that time in which the API server could be reached, at least."""
        return end - begin - sum(max(0.0, min(end, b) - max(begin, a)) for a, b in self.absences)

    def watch(self, view: ClusterView) -> None:
        self._views = [v for v in self._views if not v.host.is_dead]
        self._views.append(view)

    def on_machine(self, cloud: SimCloud, machine: SimMachine) -> None:
        """A machine came to run, stopped, or is gone."""
        if not machine.is_ours:
            return
        if machine.is_alive and machine.state is MachineState.RUNNING and not machine.deleting:
            if machine not in self._of:
                self._of[machine] = []
                for number, name in enumerate(machine.node_names if machine.joins_after < 1e8 else ()):
                    self._loop.later(machine.joins_after + 7 * number, self._join, cloud, machine, name)
            for name in self._of[machine]:
                self.set_ready(name, is_ready=True)
        elif not machine.is_alive or machine.state is not MachineState.PENDING:
            for name in self._of.get(machine, ()):
                self._loop.later(_UNREADY_AFTER, self._silent, name, machine)

    def _join(self, cloud: SimCloud, machine: SimMachine, name: str) -> None:
        if not machine.is_alive or machine.state is not MachineState.RUNNING or machine.deleting:
            return
        known = self.nodes.get(name)
        if known is not None and known.machine.is_alive and known.machine is not machine:
            return  # the API server keeps a node's providerID: a second kubelet of that name gets no node
        wall = EPOCH + self._loop.time()
        node = Node(
            name=name,
            uid=f"uid-{cloud.name}-{machine.serial}-{name}",
            provider_id=machine.provider_id,
            ready=True,
            created_at=wall,
            ready_since=wall,
            labels={"kubernetes.io/hostname": name},
        )
        self.nodes[name] = SimNode(node, machine, cloud.name)
        if machine.joined_at is None:
            machine.joined_at = self._loop.time()
        self._of.setdefault(machine, []).append(name)
        self._trace("kubernetes", f"{name} joins")
        self.changed()

    def _silent(self, name: str, machine: SimMachine) -> None:
        found = self.nodes.get(name)
        if (
            found is None
            or found.machine is not machine
            or (machine.is_alive and machine.state is MachineState.RUNNING)
        ):
            return
        self.set_ready(name, is_ready=False)
        if not machine.is_alive:
            self._loop.later(60, self.remove, name, machine)

    def set_ready(self, name: str, *, is_ready: bool) -> None:
        found = self.nodes.get(name)
        if found is None or found.node.ready is is_ready:
            return
        found.node = replace(found.node, ready=is_ready, ready_since=EPOCH + self._loop.time())
        found.unready_since = None if is_ready else self._loop.time()
        self._trace("kubernetes", f"{name} ready={is_ready}")
        self.changed()

    def remove(self, name: str, machine: SimMachine) -> None:
        found = self.nodes.get(name)
        if found is not None and found.machine is machine:
            del self.nodes[name]
            self._trace("kubernetes", f"{name} removed")
            self.changed()

    def has_ready_node(self, machine: SimMachine) -> bool:
        return any(node.is_ready for node in self.nodes_of(machine))

    def nodes_of(self, machine: SimMachine) -> list[SimNode]:
        return [
            self.nodes[n] for n in self._of.get(machine, ()) if n in self.nodes and self.nodes[n].machine is machine
        ]

    def changed(self) -> None:
        for view in self._views:
            view.host.post(view.on_change)


class ClusterView:
    """What one process sees of the cluster (:class:`cloudgraft.engine.nodes.tracking.Cluster`)."""

    def __init__(self, kubernetes: SimKubernetes, host: Host) -> None:
        self.host = host
        self._kubernetes = kubernetes
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._matches: Matches | None = None
        self._listeners: list[Callable[[], None]] = []
        kubernetes.watch(self)

    @property
    def is_known(self) -> bool:
        return not self._kubernetes.is_away

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        if self._claims.get(cloud, ()) != tuple(claims):
            self._claims[cloud] = tuple(claims)
            self._matches = None
            for claim in claims:
                if claim.stage is Stage.GONE and not self._kubernetes.is_away:
                    self._sweep(claim)

    def _sweep(self, claim: Claim) -> None:
        """As the keeper does: the node of a machine that is gone is removed, once it is not ready."""
        key = self._match().nodes.get(claim.name)
        found = self._kubernetes.nodes.get(key.removeprefix("/")) if key else None
        if found is not None and not found.is_ready:
            self._kubernetes.remove(found.node.name, found.machine)

    def joined(self, name: str) -> JoinedNode | None:
        key = self._match().nodes.get(name)
        found = self._kubernetes.nodes.get(key.removeprefix("/")) if key else None
        if found is None:
            return None
        return JoinedNode(node=found.node, unready_since=None if found.node.ready else found.node.ready_since)

    def is_disputed(self, name: str) -> bool:
        return name in self._match().disputed

    def is_ready_name(self, name: str) -> bool:
        found = self._kubernetes.nodes.get(name)
        return found is not None and found.is_ready

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        return rivals(claims, [found.node for found in self._kubernetes.nodes.values()], _WAYS)

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def problems(self) -> Sequence[Problem]:
        return ()

    def on_change(self) -> None:
        self._matches = None
        if not self._kubernetes.is_away:
            for listener in self._listeners:
                listener()

    def _match(self) -> Matches:
        if self._matches is None:
            claims = [claim for claims in self._claims.values() for claim in claims]
            self._matches = matched(claims, [n.node for n in self._kubernetes.nodes.values()], _WAYS)
        return self._matches
