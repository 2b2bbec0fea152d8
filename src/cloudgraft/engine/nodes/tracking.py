"""The nodes of our machines, as far as the cluster can be seen. What is read here goes into the machines' sights.

An API server that is away must not cost a machine. So nothing is measured by the clock alone: only the time between two
looks counts that both found the cluster well known. Somebody who stops the process or sets the clock makes no machine
late either: of a long time between two looks only a part counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cloudgraft.engine.machines.observation import LONGEST_GAP, Sight
from cloudgraft.engine.nodes.cluster import Cluster
from cloudgraft.joining.claims import Claim, Stage
from cloudgraft.joining.match import Problem
from cloudgraft.joining.rivals import Rivals
from cloudgraft.sdk.driver import Machine
from cloudgraft.store.records import MachineRecord, State

__all__ = ["NodeCount", "Nodes"]

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

    def see(self, record: MachineRecord, sight: Sight) -> None:
        """Reads what the cluster shows of one machine into its sight."""
        seen = () if sight.machine is None else (sight.machine, *sight.extras)
        sight.rivals = self.rivals(record, seen) if sight.extras else Rivals()
        if self.cluster is None or not self.cluster.is_known:
            sight.joined = sight.unready_since = None
            sight.is_named = sight.is_disputed = False
            return
        found = self.cluster.joined(record.name)
        sight.joined, sight.node = found is not None, found.node if found is not None else None
        sight.is_disputed = found is None and self.cluster.is_disputed(record.name)
        if sight.is_disputed:
            sight.joined = None
        sight.last_node = sight.node or sight.last_node
        sight.unready_since = found.unready_since if found is not None else None
        is_known = sight.may_be_ready or self.cluster.is_ready_name(record.name)
        sight.is_named = record.state in _UNMADE and is_known
        is_awaited = record.state is State.RUNNING and sight.joined is False
        sight.unjoined_from = self._from(sight.unjoined_from, is_so=is_awaited)
        if sight.unready_since != sight.unready_mark:  # it was ready meanwhile, perhaps while nobody could see that
            sight.unready_from, sight.unready_mark = None, sight.unready_since
        sight.unready_from = self._from(sight.unready_from, is_so=sight.unready_since is not None)
        sight.unjoined_for = self._watched - sight.unjoined_from if sight.unjoined_from is not None else 0.0
        sight.unready_for = self._watched - sight.unready_from if sight.unready_from is not None else 0.0

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
