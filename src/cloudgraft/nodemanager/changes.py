"""Makes changes that are requested over REST: checked, made and answered in one commit, once for each key.

The key and the answer are in the journal together with the change. Whoever asks again under the same key, because the
answer was lost with the connection or with the whole process, is given that answer, and nothing is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from cloudgraft.engine.machines.states import COUNTED
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import Change, ErrorRecord, MachineRecord, RequestRecord, State

__all__ = [
    "CREATE",
    "DELETE",
    "MOST_KEYS",
    "STATES",
    "Asked",
    "Changes",
    "KeyReusedError",
    "Operation",
    "Outcome",
    "operation_id",
    "operation_ids",
    "operation_of",
    "operations_of",
]


# -- Operations under way: read from the journal's records, so that a restart changes none -----------------------------
# A machine has one operation that makes it, and later one that removes it. Pure.


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


# -- Changes -----------------------------------------------------------------------------------------------------------


MOST_KEYS: Final = 50_000  # that are remembered: what a front needs in a day, even if it changes something all the time


class KeyReusedError(InvalidArgumentError):
    """A key under which something else was asked for before."""

    http_status = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks for a change under which key, and a fingerprint of what is asked for. Without a key: only once."""

    caller: str
    key: str
    fingerprint: str

    @classmethod
    def of(cls, caller: str, key: str, *what: object) -> Asked:
        """For a request that says ``what``, which is anything that JSON has."""
        text = json.dumps(what, sort_keys=True)
        return cls(caller=caller, key=key, fingerprint=hashlib.sha256(text.encode()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a change came to."""

    target_size: int
    operations: Sequence[str]  # their ids


class Changes:
    """Makes changes of one engine's groups."""

    def __init__(self, provider: EngineProvider) -> None:
        self._provider = provider
        self._engine = provider.engine

    async def increase(self, group: str, delta: int, asked: Asked) -> Outcome:
        """More machines; not beyond the group's maximum, also when two fronts ask at the same moment."""

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
        """R49-R58: all of the nodes, or none when one is not of this group; also below the minimum."""
        return await self._make(group, lambda: self._provider.plan_delete(group, nodes), asked)

    async def decrease_target(self, group: str, delta: int, asked: Asked) -> Outcome:
        """R59-R64: gives up what was never ordered; always fine."""
        return await self._make(group, lambda: self._provider.plan_decrease(group, -delta), asked)

    async def _make(self, group: str, plan: Callable[[], Change], asked: Asked) -> Outcome:
        self._engine.check_open()
        answer: Mapping[str, Any] = {}

        def once() -> Change:
            """Runs when it is this change's turn: between this and the commit there is no other."""
            nonlocal answer
            known = self._engine.fleet.requests.get((asked.caller, asked.key)) if asked.key else None
            if known is not None:
                answer = _said(known, asked)
                return Change()
            if group not in self._engine.fleet.groups:
                raise NotFoundError(f"there is no node group {group!r}")
            change = plan()
            answer = {
                "targetSize": self._target(group, change),
                "operations": [operation_id(r) for r in change.machines],
            }
            return self._remembered(change, asked, answer) if asked.key else change

        await self._provider.order(once)
        return Outcome(target_size=answer["targetSize"], operations=answer["operations"])

    def _remembered(self, change: Change, asked: Asked, answer: Mapping[str, Any]) -> Change:
        """With its key; the oldest key makes room for it when there are too many."""
        requests = self._engine.fleet.requests
        surplus = islice(requests, max(0, len(requests) + 1 - MOST_KEYS))
        return replace(change, requests=(self._record(asked, answer),), removed_requests=tuple(surplus))

    def _record(self, asked: Asked, answer: Mapping[str, Any]) -> RequestRecord:
        return RequestRecord(
            caller=asked.caller,
            key=asked.key,
            fingerprint=asked.fingerprint,
            answer=answer,
            at=self._engine.clock.now(),
        )

    def _target(self, group: str, change: Change) -> int:
        """The target after a change that is about to be made."""
        known = self._engine.fleet.machines
        before = sum(r.name in known and known[r.name].state in COUNTED for r in change.machines)
        return self._engine.fleet.groups[group].target + sum(r.state in COUNTED for r in change.machines) - before


def _said(known: RequestRecord, asked: Asked) -> Mapping[str, Any]:
    if known.fingerprint != asked.fingerprint:
        raise KeyReusedError("this Idempotency-Key was used for another request: use a new one for every change")
    return known.answer
