"""The bill, and the count of the machines: kept from what the client was told, loop by loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.demo.events import GroupState
from cloudgraft.demo.times import HOUR
from cloudgraft.sdk import InstanceState

__all__ = ["Ledger", "hourly_cost"]


@dataclass(slots=True)
class Ledger:
    """Counts machines and money over the day."""

    cost: float = 0.0
    most_machines: int = 0
    most_milli_cpu: int = 0
    _ran: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _listed: Mapping[str, float] = field(default_factory=dict)  # what costs money, with its price per hour

    @property
    def created(self) -> int:
        """Machines that came to run."""
        return len(self._ran)

    @property
    def failed(self) -> int:
        """Machines that the cloud could not give."""
        return len(self._failed)

    @property
    def deleted(self) -> int:
        """Machines that ran and are gone."""
        return len(self._ran - self._listed.keys())

    def note(self, groups: Sequence[GroupState], seconds: float) -> None:
        """Takes in what was seen in one loop, and bills the time since the one before.

        A cloud asks for money from the order on. So what is new was ordered in the loop before, right after it was
        asked for, and what is missing was there until now: the loops are close together while anything is on its way.
        """
        listed = _costly(groups)
        self.cost += sum({**self._listed, **listed}.values()) * seconds / HOUR
        self._listed = listed
        self._failed |= {instance.id for group in groups for instance in group.failed}
        running = [(group, _running(group)) for group in groups]
        self._ran |= {id_ for _, ids in running for id_ in ids}
        self.most_machines = max(self.most_machines, sum(len(ids) for _, ids in running))
        milli_cpu = sum(len(ids) * group.shape.milli_cpu for group, ids in running)
        self.most_milli_cpu = max(self.most_milli_cpu, milli_cpu)


def hourly_cost(groups: Sequence[GroupState]) -> float:
    """What the machines cost per hour: all that the cloud has accepted, until they are gone."""
    return sum(_costly(groups).values())


def _costly(groups: Sequence[GroupState]) -> dict[str, float]:
    return {instance.id: group.price for group in groups for instance in group.instances if instance.error is None}


def _running(group: GroupState) -> list[str]:
    return [instance.id for instance in group.instances if instance.state is InstanceState.RUNNING]
