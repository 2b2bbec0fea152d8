"""Models a cluster without Kubernetes: nodes, pods, and a scheduler that takes the first node with room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.demo.decide import Room, Shape, place
from cloudgraft.demo.timetable import PodSpec
from cloudgraft.sdk import NodeRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that is up, as its kubelet would know it."""

    name: str  # the node's
    provider_id: str
    shape: Shape


@dataclass(slots=True, kw_only=True)
class Node:
    """A Node object."""

    name: str
    provider_id: str
    shape: Shape
    leaving: bool = False  # it has the taint ToBeDeleted: nothing is scheduled there any more

    @property
    def ref(self) -> NodeRef:
        """The node as the autoscaler describes it to a server."""
        return NodeRef(name=self.name, provider_id=self.provider_id, labels=self.shape.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The nodes that came and went."""

    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


@dataclass(slots=True)
class Cluster:
    """All nodes and all pods that are not finished."""

    nodes: dict[str, Node] = field(default_factory=dict)
    finished: int = 0
    _pods: dict[str, PodSpec] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)  # pod -> node

    @property
    def pending(self) -> tuple[PodSpec, ...]:
        """The pods that are on no node, oldest first."""
        return tuple(pod for name, pod in self._pods.items() if name not in self._places)

    @property
    def running(self) -> int:
        """How many pods are on a node."""
        return len(self._places)

    @property
    def staying(self) -> list[Node]:
        """The nodes that are not being deleted."""
        return [node for node in self.nodes.values() if not node.leaving]

    def submit(self, pods: Iterable[PodSpec]) -> None:
        """Adds pods, pending until the next :meth:`schedule`."""
        self._pods.update({pod.name: pod for pod in pods})

    def finish_until(self, now: float) -> list[PodSpec]:
        """Ends the running pods whose time has come; a pod that never ran cannot finish."""
        done = [pod for name, pod in self._pods.items() if name in self._places and pod.ends_at <= now]
        for pod in done:
            del self._pods[pod.name], self._places[pod.name]
        self.finished += len(done)
        return done

    def ends(self) -> list[float]:
        """The times at which the pods will finish."""
        return [pod.ends_at for pod in self._pods.values()]

    def follow(self, machines: Sequence[Machine]) -> Changes:
        """Registers a node for each machine that is up, and drops the nodes of machines that are gone (R57)."""
        up = {machine.name: machine for machine in machines}
        joined = [machine for name, machine in up.items() if name not in self.nodes]
        left = [name for name in self.nodes if name not in up]
        for machine in joined:
            self.nodes[machine.name] = Node(name=machine.name, provider_id=machine.provider_id, shape=machine.shape)
        for name in left:
            self.evict(name)
            del self.nodes[name]
        return Changes(joined=tuple(machine.name for machine in joined), left=tuple(left))

    def schedule(self) -> Mapping[str, str]:
        """Puts pending pods on nodes, and returns their places."""
        placed = place(self.pending, self.rooms()).places
        self._places.update(placed)
        return placed

    def evict(self, node: str) -> tuple[str, ...]:
        """Makes a node's pods pending again."""
        moved = tuple(pod.name for pod in self.pods_on(node))
        for pod in moved:
            del self._places[pod]
        return moved

    def pods_on(self, node: str) -> list[PodSpec]:
        """The pods of one node."""
        return [self._pods[pod] for pod, where in self._places.items() if where == node]

    def rooms(self) -> list[Room]:
        """The free resources of the nodes that stay, in the order in which they joined."""
        return [self.room(node) for node in self.staying]

    def room(self, node: Node) -> Room:
        """The free resources of a node."""
        return Room.of(node.name, node.shape, self.pods_on(node.name))
