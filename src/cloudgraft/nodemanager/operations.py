"""What is under way for machines, one operation each: read from the journal's records, so a restart changes none.

A machine has one operation that makes it, and later one that removes it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cloudgraft.store.records import ErrorRecord, MachineRecord, State

__all__ = ["CREATE", "DELETE", "STATES", "Operation", "operation_id", "operation_ids", "operation_of", "operations_of"]

CREATE: Final = "create"
DELETE: Final = "delete"
STATES: Final = ("waiting", "running", "succeeded", "failed", "cancelled")
_MAKING: Final = {
    State.REQUESTED: "waiting",
    State.CREATING: "running",
    State.BOOTING: "running",
    State.RUNNING: "succeeded",
    State.FAILED: "failed",
}
_LEAVING: Final = frozenset({State.DELETING, State.GONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of the two operations of a machine."""

    id: str
    kind: str
    machine: str
    group: str
    state: str
    since: float
    error: ErrorRecord | None = None


def operation_id(record: MachineRecord) -> str:
    """The operation that the record is in the middle of, or at the end of."""
    return f"{DELETE if record.state in _LEAVING else CREATE}:{record.name}"


def operation_ids(record: MachineRecord) -> tuple[str, ...]:
    """The ids of both of them, or of the first."""
    making = f"{CREATE}:{record.name}"
    return (making, f"{DELETE}:{record.name}") if record.state in _LEAVING else (making,)


def operations_of(record: MachineRecord) -> Iterator[Operation]:
    """Both of them, or only the first."""
    yield Operation(
        id=f"{CREATE}:{record.name}",
        kind=CREATE,
        machine=record.name,
        group=record.group,
        state=_MAKING.get(record.state) or _made(record),
        since=record.requested_at,
        error=record.error,
    )
    if record.state in _LEAVING:
        state = "running" if record.state is State.DELETING else "succeeded"
        yield Operation(
            id=f"{DELETE}:{record.name}",
            kind=DELETE,
            machine=record.name,
            group=record.group,
            state=state,
            since=record.state_since,
        )


def operation_of(record: MachineRecord, id_: str) -> Operation | None:
    """The one with that id."""
    return next((operation for operation in operations_of(record) if operation.id == id_), None)


def _made(record: MachineRecord) -> str:
    """How the making of a machine ended that is leaving, or has left."""
    if record.machine_id:
        return "succeeded"
    return "failed" if record.error is not None else "cancelled"
