"""Tracks the nodes of our machines while the cluster can be seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cloudgraft.engine.machines.observation import LONGEST_GAP, NodeView, Observation
from cloudgraft.joining.claims import Claim, JoinedNode, NewMachine, Stage
from cloudgraft.joining.match import Problem, Rivals
from cloudgraft.sdk.driver import Machine
from cloudgraft.store.records import MachineRecord, State

# -- cluster interfaces ------------------------------------------------------------------------------------------------
# Both are optional: without them the engine does not know whether a machine's node has joined, and creates machines
# without user data. :mod:`cloudgraft.joining` implements them.


class Cluster(Protocol):
    """The nodes of the cluster. Every method answers from memory, without waiting."""

    @property
    def is_known(self) -> bool:
        """Whether the data are fresh enough to act on; False while the Kubernetes API is unavailable."""

    def claim(self, cloud: str, claims: Sequence[Claim], may_act: Callable[[], bool] | None = None) -> None:
        """Replaces all claims of a cloud.

        ``may_act`` is checked before any change of a node: False as soon as another process leads.
        """

    def joined(self, name: str) -> JoinedNode | None:
        """The node of this machine; None when there is none, or when it is unclear which one it is."""

    def is_disputed(self, name: str) -> bool:
        """Whether this machine may have one of several nodes: then it must not count as not joined."""

    def is_ready_name(self, name: str) -> bool:
        """Whether a ready node has exactly this name. For machines of which only the name is known yet."""

    def rivals(self, claims: Sequence[Claim]) -> Rivals:
        """Which of several machines for one intent have joined. Each has its own claim, with the same name.

        Also works for a single machine without a published claim.
        """

    def listen(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` on the event loop when nodes have come, gone, or changed."""

    def problems(self) -> Sequence[Problem]:
        """The current problems with reading or maintaining nodes."""


class UserData(Protocol):
    """Makes the user data with which a machine joins the cluster when it boots."""

    async def make(self, machine: NewMachine) -> str:
        """The user data of a machine, with its own credentials. A retry for the same name returns the same text.

        Raises CloudgraftError before any call to the cloud; the class of the error decides whether it is retried.
        """

    async def settle(self, name: str) -> None:
        """Revokes the credentials of a machine that has joined, failed, or is no longer wanted."""


_UNMADE: Final = frozenset({State.REQUESTED, State.CREATING})


@dataclass(slots=True)
class NodeCount:
    """How many nodes there are, and how many of them are not ready."""

    joined: int = 0
    unready: int = 0


class Nodes:
    """The view of the cluster that all workers share."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        self._watched = 0.0  # seconds in which the cluster was known
        self._looked_at: float | None = None  # the latest check, if the cluster was known then
        self._counts: dict[str, Mapping[str, NodeCount]] = {}  # by cloud and group

    @property
    def is_known(self) -> bool:
        """Whether there is a cluster, and its data are fresh enough to act on."""
        return self.cluster is not None and self.cluster.is_known

    @property
    def is_clear(self) -> bool:
        """Whether machines in use can be recognized as far as possible: the cluster is known, or none is configured."""
        return self.cluster is None or self.is_known

    def is_used(self, machine: Machine) -> bool:
        """Whether a machine outside the journal is a ready node of the cluster."""
        if self.cluster is None:
            return False
        return machine.machine_id in self.cluster.rivals([_claim(machine.name, machine)]).ready

    def rivals(self, record: MachineRecord, machines: Sequence[Machine]) -> Rivals:
        """Which of several machines for one intent have joined; none while the cluster is not known."""
        if self.cluster is None or not self.cluster.is_known:
            return Rivals()
        return self.cluster.rivals([_claim(record.name, machine) for machine in machines])

    def problems(self) -> Sequence[Problem]:
        """The current problems with reading or maintaining nodes."""
        return () if self.cluster is None else self.cluster.problems()

    def exchange(self, cluster: Cluster | None) -> None:
        """Switches to another cluster, or another connection: all nodes are observed again."""
        self.cluster, self._looked_at = cluster, None

    def watch(self, now: float) -> None:
        """Counts the time since the latest check; call it before :meth:`see`."""
        is_known = self.is_known
        if is_known and self._looked_at is not None:
            self._watched += max(0.0, min(now - self._looked_at, LONGEST_GAP))
        self._looked_at = now if is_known else None

    def see(self, record: MachineRecord, observation: Observation) -> NodeView:
        """What the cluster shows of a machine now."""
        before, listed = observation.node, observation.listed
        seen = () if listed.machine is None else (listed.machine, *listed.extras)
        rivals = self.rivals(record, seen) if listed.extras else Rivals()
        if self.cluster is None or not self.cluster.is_known:
            return replace(before, rivals=rivals, joined=None, unready_since=None, is_named=False, is_disputed=False)
        found = self.cluster.joined(record.name)
        is_known = before.is_ready and before.is_named == (record.state in _UNMADE) and before.rivals == rivals
        if is_known and found is not None and found.node is before.current and found.unready_since is None:
            return before  # nearly all of them, nearly always
        is_disputed = found is None and self.cluster.is_disputed(record.name)
        joined = None if is_disputed else found is not None
        unready_since = found.unready_since if found is not None else None
        may_be_ready = is_disputed or (found is not None and unready_since is None)
        is_awaited = record.state is State.RUNNING and joined is False
        unjoined_from = self._from(before.unjoined_from, is_so=is_awaited)
        # Another mark: it was ready in between, perhaps while the cluster could not be seen.
        unready_from = before.unready_from if unready_since == before.unready_mark else None
        unready_from = self._from(unready_from, is_so=unready_since is not None)
        return NodeView(
            joined=joined,
            current=found.node if found is not None else None,
            last=found.node if found is not None else before.last,
            rivals=rivals,
            is_disputed=is_disputed,
            is_named=record.state in _UNMADE and (may_be_ready or self.cluster.is_ready_name(record.name)),
            unready_since=unready_since,
            unjoined_for=self._watched - unjoined_from if unjoined_from is not None else 0.0,
            unready_for=self._watched - unready_from if unready_from is not None else 0.0,
            unjoined_from=unjoined_from,
            unready_from=unready_from,
            unready_mark=unready_since,
        )

    def _from(self, since: float | None, *, is_so: bool) -> float | None:
        if not is_so:
            return None
        return self._watched if since is None else since

    # -- totals ------------------------------------------------------------------------------------------------------

    def count(self, cloud: str, counts: Mapping[str, NodeCount]) -> None:
        """Replaces the counts of one cloud's nodes, by group."""
        self._counts[cloud] = counts

    def drop(self, cloud: str) -> None:
        """Removes the counts and claims of a cloud that has no worker any more."""
        self._counts.pop(cloud, None)
        if self.cluster is not None:
            self.cluster.claim(cloud, ())

    def of_group(self, cloud: str, group: str) -> NodeCount:
        """How many nodes a group has."""
        return self._counts.get(cloud, {}).get(group, NodeCount())

    def total(self) -> NodeCount:
        """The count of all our machines' nodes."""
        counts = [count for groups in self._counts.values() for count in groups.values()]
        return NodeCount(sum(count.joined for count in counts), sum(count.unready for count in counts))

    @property
    def is_dark(self) -> bool:
        """Whether most nodes are not ready: then the cause is the network or the control plane, not the nodes."""
        total = self.total()
        return total.unready > 1 and 2 * total.unready > total.joined


def _claim(name: str, machine: Machine) -> Claim:
    """A claim to compare nodes with a machine that has no published claim."""
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
