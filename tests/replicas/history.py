"""Records what clients asked of a node group and what they were answered, with times."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field


class Kind(enum.Enum):
    """What a client can ask that depends on a group's state, or changes it."""

    INCREASE = "increase"
    DELETE = "delete"
    DECREASE = "decrease"  # removes some of the machines that were never ordered: the server decides which
    TARGET = "target"
    INSTANCES = "instances"
    ABSENT = "absent"  # NodeGroupForNode denies that the machine is ours

    @property
    def is_change(self) -> bool:
        return self in (Kind.INCREASE, Kind.DELETE, Kind.DECREASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call. A change whose outcome is unknown has no end: it may take effect at any later time, or never."""

    number: int
    group: str
    kind: Kind
    begin: float
    end: float = math.inf
    amount: int = 0  # how many machines were asked for or given up; the target that was answered
    names: frozenset[str] = frozenset()  # machines that were deleted, denied, or listed and not being deleted

    @property
    def is_known(self) -> bool:
        return self.end < math.inf

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.amount if not self.names else ' '.join(sorted(self.names))}"
        return f"{self.begin:.3f}-{self.end:.3f} {self.group}: {what}"


@dataclass(frozen=True, slots=True)
class Failover:
    """The database went on without the commits after ``kept``; from ``settled`` on, a leader has read what it has."""

    kept: float
    at: float
    settled: float


@dataclass(slots=True)
class History:
    """Everything that was asked in one run."""

    operations: list[Operation] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def of_group(self, group: str) -> list[Operation]:
        return [operation for operation in self.operations if operation.group == group]

    def groups(self) -> list[str]:
        return sorted({operation.group for operation in self.operations})
