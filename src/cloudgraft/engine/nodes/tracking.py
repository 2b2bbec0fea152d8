"""Tracks the nodes of our machines, as far as the cluster can be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cloudgraft.engine.machines.observation import LONGEST_GAP, Observation
from cloudgraft.joining.claims import Claim, JoinedNode, NewMachine, Stage
from cloudgraft.joining.match import Problem, Rivals
from cloudgraft.sdk.driver import Machine
from cloudgraft.store.records import MachineRecord, State

__all__ = ["Cluster", "NodeCount", "Nodes", "UserData"]


# -- What the engine asks of the cluster that its machines join, where there is one to be seen -------------------------
# Both are optional: without them the engine does not know whether a machine's node ever came, and creates machines
# without user data. See :mod:`cloudgraft.joining` for what stands behind them.


class Cluster(Protocol):
    """The nodes of the cluster. Every method answers from memory, at once."""

    @property
    def is_known(self) -> bool:
        """Whether what is answered is fresh enough to act on; False while the Kubernetes API is away."""

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        """All machines of a cloud, in place of what was told of it before.

        ``may_act`` is asked before anything is done about any node: False as soon as another process leads.
        """

    def joined(self, name: str) -> JoinedNode | None:
        """The node of this machine; None when there is none, or when it is not certain which one it is."""

    def is_disputed(self, name: str) -> bool:
        """Whether this machine may have one of several nodes: then nobody can say that it has not joined."""

    def is_ready_name(self, name: str) -> bool:
        """Whether a ready node has exactly this name. For machines of which nothing but the name is known yet."""

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        """Which of several machines for one intent have joined. Each is a claim of its own, of the same name.

        Also for a single machine that nobody claims.
        """

    def listen(self, on_change: Callable[[], None]) -> None:
        """Calls back, on the event loop, when nodes have come, gone, or changed."""

    def problems(self) -> Sequence[Problem]:
        """What keeps nodes from being known or looked after, at present."""


class UserData(Protocol):
    """What a machine is told when it boots, so that it joins the cluster."""

    async def make(self, machine: NewMachine) -> str:
        """The user data of a machine, with credentials of its own. The same text for a second try of the same name.

        Raises CloudgraftError before anything was asked of the cloud; its class decides whether it is tried again.
        """

    async def settle(self, name: str) -> None:
        """Takes back the credentials of a machine that has joined, failed, or is not wanted any more."""


_UNMADE: Final = frozenset({State.REQUESTED, State.CREATING})


@dataclass(slots=True)
class NodeCount:
    """How many nodes there are, and how many of them are not ready."""

    joined: int = 0
    unready: int = 0


class Nodes:
    """What all workers know of the cluster."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        self._watched = 0.0  # seconds in which the cluster was known
        self._looked_at: float | None = None  # the latest look, if that found it known
        self._counts: dict[str, Mapping[str, NodeCount]] = {}  # by cloud and group

    @property
    def is_known(self) -> bool:
        """Whether there is a cluster, and what it shows is fresh enough to act on."""
        return self.cluster is not None and self.cluster.is_known

    @property
    def is_clear(self) -> bool:
        """Whether nothing hides which machines are in use: the cluster is known, or there is none to be seen."""
        return self.cluster is None or self.is_known

    def is_used(self, machine: Machine) -> bool:
        """Whether a machine that the journal does not have is a ready node of the cluster."""
        if self.cluster is None:
            return False
        return machine.machine_id in self.cluster.rivals([_claim(machine.name, machine)]).ready

    def rivals(self, record: MachineRecord, machines: Sequence[Machine]) -> Rivals:
        """Which of several machines for one intent have joined; none, while the cluster is not known."""
        if self.cluster is None or not self.cluster.is_known:
            return Rivals()
        return self.cluster.rivals([_claim(record.name, machine) for machine in machines])

    def problems(self) -> Sequence[Problem]:
        """What keeps nodes from being known or looked after, at present."""
        return () if self.cluster is None else self.cluster.problems()

    def exchange(self, cluster: Cluster | None) -> None:
        """Another cluster, or another way to it: what was seen through the old one is seen anew."""
        self.cluster, self._looked_at = cluster, None

    def watch(self, now: float) -> None:
        """Counts the time since the latest look; to be called before machines are seen."""
        is_known = self.is_known
        if is_known and self._looked_at is not None:
            self._watched += max(0.0, min(now - self._looked_at, LONGEST_GAP))
        self._looked_at = now if is_known else None

    def see(self, record: MachineRecord, observation: Observation) -> None:
        """Reads what the cluster shows of one machine into its observation."""
        seen = () if observation.machine is None else (observation.machine, *observation.extras)
        observation.rivals = self.rivals(record, seen) if observation.extras else Rivals()
        if self.cluster is None or not self.cluster.is_known:
            observation.joined = observation.unready_since = None
            observation.is_named = observation.is_disputed = False
            return
        found = self.cluster.joined(record.name)
        observation.joined, observation.node = found is not None, found.node if found is not None else None
        observation.is_disputed = found is None and self.cluster.is_disputed(record.name)
        if observation.is_disputed:
            observation.joined = None
        observation.last_node = observation.node or observation.last_node
        observation.unready_since = found.unready_since if found is not None else None
        is_known = observation.may_be_ready or self.cluster.is_ready_name(record.name)
        observation.is_named = record.state in _UNMADE and is_known
        is_awaited = record.state is State.RUNNING and observation.joined is False
        observation.unjoined_from = self._from(observation.unjoined_from, is_so=is_awaited)
        if (
            observation.unready_since != observation.unready_mark
        ):  # it was ready meanwhile, perhaps while nobody could see that
            observation.unready_from, observation.unready_mark = None, observation.unready_since
        observation.unready_from = self._from(observation.unready_from, is_so=observation.unready_since is not None)
        observation.unjoined_for = (
            self._watched - observation.unjoined_from if observation.unjoined_from is not None else 0.0
        )
        observation.unready_for = (
            self._watched - observation.unready_from if observation.unready_from is not None else 0.0
        )

    def _from(self, since: float | None, *, is_so: bool) -> float | None:
        if not is_so:
            return None
        return self._watched if since is None else since

    # -- of all together ---------------------------------------------------------------------------------------------

    def count(self, cloud: str, counts: Mapping[str, NodeCount]) -> None:
        """Takes a fresh count of one cloud's nodes, by group."""
        self._counts[cloud] = counts

    def drop(self, cloud: str) -> None:
        """Nobody looks after a cloud's machines any more, and so nobody claims their nodes."""
        self._counts.pop(cloud, None)
        if self.cluster is not None:
            self.cluster.claim(cloud, ())

    def of_group(self, cloud: str, group: str) -> NodeCount:
        """How many nodes a group has."""
        return self._counts.get(cloud, {}).get(group, NodeCount())

    def total(self) -> NodeCount:
        """All of our machines' nodes."""
        counts = [count for groups in self._counts.values() for count in groups.values()]
        return NodeCount(sum(count.joined for count in counts), sum(count.unready for count in counts))

    @property
    def is_dark(self) -> bool:
        """Whether most nodes are not ready: then it is the network or the control plane, and not they."""
        total = self.total()
        return total.unready > 1 and 2 * total.unready > total.joined


def _claim(name: str, machine: Machine) -> Claim:
    """A machine whose node nobody looks after, as nodes are compared with it."""
    return Claim(
        name=name,
        cloud="",
        group="",
        stage=Stage.WANTED,
        provider_id=machine.provider_id or "",
        machine_id=machine.machine_id,
        addresses=tuple(machine.addresses),
        ordered_at=machine.created_at.timestamp() if machine.created_at else 0.0,
    )
