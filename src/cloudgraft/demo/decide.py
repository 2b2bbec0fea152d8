"""Decides for the demo's autoscaler. Pure: from observation to actions, without a call or a clock.

A subset of the autoscaler's own rules: pods are packed on copies of a group's template, the cheapest option wins, and
a node is removed when it was little used for long enough and its pods fit elsewhere. Only cpu, labels, taints and the
number of pods count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from cloudgraft.demo.timetable import PodSpec
from cloudgraft.sdk import NodeTemplate, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The resources, labels and taints of a node."""

    milli_cpu: int
    pods: int = 110
    memory: str = ""  # only shown
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()  # keys

    @classmethod
    def of(cls, template: NodeTemplate) -> Shape:
        """The shape of a template; a resource that it leaves out does not exist (R68)."""
        nothing = Quantity(0)
        return cls(
            milli_cpu=int(template.allocatable.get("cpu", nothing).value * 1000),
            pods=int(template.allocatable.get("pods", nothing).value),
            memory=str(template.capacity.get("memory", "")),
            labels=dict(template.labels),
            taints=frozenset(taint.key for taint in template.taints if taint.effect != "PreferNoSchedule"),
        )

    def admits(self, pod: PodSpec) -> bool:
        """Whether labels and taints admit the pod, however full the node is."""
        return pod.selector.items() <= self.labels.items() and self.taints <= pod.tolerates


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The free resources of a node, real or planned."""

    name: str
    shape: Shape
    free_milli_cpu: int
    free_pods: int

    @classmethod
    def of(cls, name: str, shape: Shape, pods: Sequence[PodSpec] = ()) -> Room:
        """The room that these pods leave on a node."""
        used = sum(pod.milli_cpu for pod in pods)
        return cls(name=name, shape=shape, free_milli_cpu=shape.milli_cpu - used, free_pods=shape.pods - len(pods))

    def fits(self, pod: PodSpec) -> bool:
        """Whether the pod can go there."""
        return self.free_pods > 0 and pod.milli_cpu <= self.free_milli_cpu and self.shape.admits(pod)

    def with_pod(self, pod: PodSpec) -> Room:
        """What is left with that pod in it."""
        return replace(self, free_milli_cpu=self.free_milli_cpu - pod.milli_cpu, free_pods=self.free_pods - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where pods go: pod -> room, those that go nowhere, and the rooms afterwards."""

    places: Mapping[str, str]
    left_over: tuple[PodSpec, ...]
    rooms: tuple[Room, ...]


def place(pods: Iterable[PodSpec], rooms: Iterable[Room]) -> Placement:
    """First fit: each pod in turn goes into the first room that has space."""
    now = list(rooms)
    places: dict[str, str] = {}
    left_over: list[PodSpec] = []
    for pod in pods:
        found = next((index for index, room in enumerate(now) if room.fits(pod)), None)
        if found is None:
            left_over.append(pod)
        else:
            places[pod.name] = now[found].name
            now[found] = now[found].with_pod(pod)
    return Placement(places=places, left_over=tuple(left_over), rooms=tuple(now))


# -- scale-up ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A group that may grow: by how many nodes, of which shape."""

    group: str
    shape: Shape
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of scale-up: a number of nodes of one group, for these pods."""

    group: str
    nodes: int
    pods: tuple[PodSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOption:
    """An option with its cost per hour, and the value of its pods."""

    option: Option
    node_price: float
    pods_price: float

    @property
    def price(self) -> float:
        """All of its nodes, per hour."""
        return self.option.nodes * self.node_price


def list_options(pods: Sequence[PodSpec], offers: Iterable[Offer]) -> list[Option]:
    """The number of nodes for each group that helps any of the pods. Large pods are packed first."""
    ordered = sorted(pods, key=lambda pod: -pod.milli_cpu)
    options = []
    for offer in offers:
        packed = place(ordered, [Room.of(f"{offer.group}/{index}", offer.shape) for index in range(offer.most)])
        if packed.places:
            helped = tuple(pod for pod in ordered if pod.name in packed.places)
            options.append(Option(group=offer.group, nodes=len(set(packed.places.values())), pods=helped))
    return options


def choose_option(options: Iterable[PricedOption], *, stabilizer: float) -> PricedOption | None:
    """The option with the lowest cost relative to the value of its pods (R84).

    ``stabilizer``, the price of a small pod, keeps tiny options from winning by a hair.
    """
    return min(
        options,
        key=lambda priced: (priced.price + stabilizer) / (priced.pods_price + stabilizer),
        default=None,
    )


# -- scale-down --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that might not be needed."""

    name: str
    group: str
    shape: Shape
    pods: tuple[PodSpec, ...]
    threshold: float  # the utilisation up to which its group allows removal

    @property
    def utilisation(self) -> Fraction:
        """The share of its cpu that pods have asked for."""
        return Fraction(sum(pod.milli_cpu for pod in self.pods), self.shape.milli_cpu or 1)


def find_removable(candidates: Iterable[Candidate], rooms: Sequence[Room], spare: Mapping[str, int]) -> list[str]:
    """The nodes that could all go together, empty ones first.

    ``rooms`` are all nodes that stay for now, the candidates among them; ``spare`` says by how many nodes a group is
    above its minimum. Pods of one removed node are never moved to another one.
    """
    left, budget = list(rooms), dict(spare)
    removable: list[str] = []
    taken_in: set[str] = set()  # nodes that others' pods would move to: they have to stay
    for candidate in sorted(candidates, key=lambda candidate: len(candidate.pods)):
        too_busy = candidate.utilisation > candidate.threshold
        if too_busy or candidate.name in taken_in or budget.get(candidate.group, 0) <= 0:
            continue
        moved = place(candidate.pods, [room for room in left if room.name != candidate.name])
        if moved.left_over:
            continue
        left = list(moved.rooms)
        taken_in.update(moved.places.values())
        budget[candidate.group] -= 1
        removable.append(candidate.name)
    return removable


def track_unneeded(since: Mapping[str, float], removable: Iterable[str], now: float) -> dict[str, float]:
    """The time since when each node is unneeded. A node that was needed in between starts again."""
    return {name: since.get(name, now) for name in removable}
