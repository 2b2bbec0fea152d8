"""Makes changes that are requested over REST: validates, makes and answers them in one commit, once for each key.

The journal stores key and response together with the change. A repeated request under the same key, after a lost
connection or a crash, gets that response, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from cloudgraft.engine.keyed_requests import Asked, answered, remembered
from cloudgraft.engine.machines.states import COUNTED
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.errors import NotFoundError, PreconditionError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import Change, ErrorRecord, MachineRecord, State

# -- Operations under way ----------------------------------------------------------------------------------------------
# Read from the journal's records, so that a restart changes none. A machine has one operation that creates it, and
# later one that deletes it. Pure.


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
    """The current or last operation of the record."""
    return f"{DELETE if record.state in _LEAVING else CREATE}:{record.name}"


def operation_ids(record: MachineRecord) -> tuple[str, ...]:
    """The ids of both of them, or of the first."""
    making = f"{CREATE}:{record.name}"
    return (making, f"{DELETE}:{record.name}") if record.state in _LEAVING else (making,)


def operations_of(record: MachineRecord) -> Iterator[Operation]:
    """Both of them, or only the first."""
    made = Operation(
        id=f"{CREATE}:{record.name}",
        kind=CREATE,
        machine=record.name,
        group=record.group,
        state=_MAKING.get(record.state) or _made(record),
        since=record.requested_at,
        error=record.error,
    )
    yield made
    if record.state in _LEAVING:
        state = "running" if record.state is State.DELETING else "succeeded"
        id_, since = f"{DELETE}:{record.name}", record.state_since
        yield replace(made, id=id_, kind=DELETE, state=state, since=since, error=None)


def operation_of(record: MachineRecord, id_: str) -> Operation | None:
    """The operation with that id."""
    return next((operation for operation in operations_of(record) if operation.id == id_), None)


def _made(record: MachineRecord) -> str:
    """How the creation of a machine ended that is being deleted, or is gone."""
    if record.machine_id:
        return "succeeded"
    return "failed" if record.error is not None else "cancelled"


# -- Changes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a change."""

    target_size: int
    operations: Sequence[str]  # their ids


class Changes:
    """Makes changes of one engine's groups."""

    def __init__(self, provider: EngineProvider) -> None:
        self._provider = provider
        self._engine = provider.engine

    async def increase(self, group: str, delta: int, asked: Asked) -> Outcome:
        """Adds machines; never beyond the group's maximum, even when two fronts ask at the same moment."""

        def plan() -> Change:
            found = self._engine.fleet.groups.get(group)
            if found is not None and found.target + delta > found.shown.max_size:
                raise PreconditionError(
                    f"node group {group!r} has a target of {found.target} and a maximum of {found.shown.max_size}: "
                    f"it cannot grow by {delta}"
                )
            return self._provider.plan_increase(group, delta)

        return await self._make(group, plan, asked)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef], asked: Asked) -> Outcome:
        """R49-R58: deletes all of the nodes, or none when one is not in this group; also below the minimum."""
        return await self._make(group, lambda: self._provider.plan_delete(group, nodes), asked)

    async def decrease_target(self, group: str, delta: int, asked: Asked) -> Outcome:
        """R59-R64: gives up what was never ordered; always allowed."""
        return await self._make(group, lambda: self._provider.plan_decrease(group, -delta), asked)

    async def _make(self, group: str, plan: Callable[[], Change], asked: Asked) -> Outcome:
        self._engine.check_open()
        answer: Mapping[str, Any] = {}

        def once() -> Change:
            """Runs in the change's turn: no other change comes between this and the commit."""
            nonlocal answer
            known = answered(self._engine, asked, key="Idempotency-Key")
            if known is not None:
                answer = known
                return Change()
            if group not in self._engine.fleet.groups:
                raise NotFoundError(f"there is no node group {group!r}")
            change = plan()
            answer = {
                "targetSize": self._target(group, change),
                "operations": [operation_id(r) for r in change.machines],
            }
            return remembered(self._engine, change, asked, answer)

        await self._provider.order(once)
        return Outcome(target_size=answer["targetSize"], operations=answer["operations"])

    def _target(self, group: str, change: Change) -> int:
        """The target after a change that is about to be made."""
        known = self._engine.fleet.machines
        before = sum(r.name in known and known[r.name].state in COUNTED for r in change.machines)
        return self._engine.fleet.groups[group].target + sum(r.state in COUNTED for r in change.machines) - before
