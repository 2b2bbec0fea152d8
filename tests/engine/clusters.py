"""A cluster in memory: nodes come and go, and the API is away, as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cloudgraft.joining.claims import Claim, JoinedNode, NewMachine, Stage
from cloudgraft.joining.match import Problem, Rivals, Way, rivals
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import Quantity
from tests.engine.engine_rig import EPOCH

CAPACITY = {"cpu": Quantity("4"), "memory": Quantity("8000000Ki"), "pods": Quantity("110")}
ALLOCATABLE = {"cpu": Quantity("3800m"), "memory": Quantity("7500000Ki"), "pods": Quantity("110")}


def a_node(name: str = "n", **changes: Any) -> Node:
    """A node that is ready and has been there for long."""
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "ready": True,
        "created_at": EPOCH - 3600,
        "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"},
        "capacity": CAPACITY,
        "allocatable": ALLOCATABLE,
    }
    return Node(name=name, **{**values, **changes})


class MemoryCluster:
    """Keeps what it is told, and shows what a test put there. Only nodes of machines that are claimed are shown."""

    def __init__(self) -> None:
        self.is_known = True
        self.told: dict[str, Sequence[Claim]] = {}
        self.times = 0  # that claims were handed over
        self.may_act: Callable[[], bool] = lambda: True
        self.nodes: dict[str, JoinedNode] = {}
        self.trouble: Sequence[Problem] = ()
        self.disputed: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        self.may_act = may_act or self.may_act
        self.told[cloud] = claims
        self.times += 1

    def joined(self, name: str) -> JoinedNode | None:
        return self.nodes.get(name) if name in self.claims else None

    def is_disputed(self, name: str) -> bool:
        return name in self.disputed

    def is_ready_name(self, name: str) -> bool:
        return any(joined.node.ready and joined.node.name == name for joined in self.nodes.values())

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        return rivals(claims, [joined.node for joined in self.nodes.values()], (Way.NAME, Way.MACHINE_ID))

    def problems(self) -> Sequence[Problem]:
        return self.trouble

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    @property
    def claims(self) -> dict[str, Claim]:
        return {claim.name: claim for claims in self.told.values() for claim in claims}

    def stages(self) -> dict[str, Stage]:
        return {name: claim.stage for name, claim in self.claims.items()}

    def join(self, *names: str, **changes: Any) -> None:
        """Machines register, each with its claimed providerID unless told otherwise."""
        for name in names:
            claim = self.claims.get(name)
            values = {"provider_id": claim.provider_id if claim else "", **changes}
            self.nodes[name] = JoinedNode(node=a_node(name, **values))
        self._tell()

    def fall_ill(self, since: float, *names: str) -> None:
        for name in names:
            old = self.nodes[name]
            self.nodes[name] = JoinedNode(node=replace(old.node, ready=False), unready_since=since)
        self._tell()

    def leave(self, *names: str) -> None:
        for name in names:
            del self.nodes[name]
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


class MemoryUserData:
    """Makes text of what it is told; fails as a test wants it."""

    def __init__(self) -> None:
        self.made: list[NewMachine] = []
        self.settled: list[str] = []
        self.error: CloudgraftError | None = None
        self.settle_error: Exception | None = None

    async def make(self, machine: NewMachine) -> str:
        self.made.append(machine)
        if self.error is not None:
            raise self.error
        return f"join as {machine.name}"

    async def settle(self, name: str) -> None:
        self.settled.append(name)
        if self.settle_error is not None:
            raise self.settle_error
