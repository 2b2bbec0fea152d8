"""The bill, and the count of the machines: kept from what the client was told, loop by loop."""

from __future__ import annotations

from collections.abc import Sequence
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
    _listed: set[str] = field(default_factory=set)

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
        return len(self._ran - self._listed)

    def note(self, groups: Sequence[GroupState]) -> None:
        """Takes in what was seen in one loop."""
        self._listed = {instance.id for group in groups for instance in group.instances}
        self._failed |= {instance.id for group in groups for instance in group.failed}
        running = [(group, _running(group)) for group in groups]
        self._ran |= {id_ for _, ids in running for id_ in ids}
        self.most_machines = max(self.most_machines, sum(len(ids) for _, ids in running))
        milli_cpu = sum(len(ids) * group.shape.milli_cpu for group, ids in running)
        self.most_milli_cpu = max(self.most_milli_cpu, milli_cpu)

    def pass_time(self, groups: Sequence[GroupState], seconds: float) -> None:
        """Bills that time for every machine that is up."""
        self.cost += hourly_cost(groups) * seconds / HOUR


def hourly_cost(groups: Sequence[GroupState]) -> float:
    """What the machines that are up cost per hour; one that is being deleted costs until it is gone."""
    up = (InstanceState.RUNNING, InstanceState.DELETING)
    return sum(group.price * sum(instance.state in up for instance in group.instances) for group in groups)


def _running(group: GroupState) -> list[str]:
    return [instance.id for instance in group.instances if instance.state is InstanceState.RUNNING]
