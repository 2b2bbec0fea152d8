"""Defines a machine's states, their transitions, and how the autoscaler sees each state.

The tables below are the only definition; all code changes states through :func:`move` and :func:`amend`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cloudgraft.sdk.errors import ErrorClass, InternalError
from cloudgraft.sdk.types import InstanceState
from cloudgraft.store.records import ErrorRecord, MachineRecord, Presence, State

# The states in which a record may begin, and when that happens.
BEGINNINGS: Final[Mapping[State, str]] = {
    State.REQUESTED: "the autoscaler or an operator asks for it, or a broken machine is to be replaced",
    State.FAILED: "it is requested while it may not be created: a guard, a pause, or a cloud that is down",
    State.BOOTING: "it is found in a cloud and proven to be ours, or an operator adopts it",
}

TRANSITIONS: Final[Mapping[tuple[State, State], str]] = {
    (State.REQUESTED, State.CREATING): "the first call to create it is about to be made",
    (State.REQUESTED, State.BOOTING): "the cloud has a machine of this name with our marks: the journal is older",
    (State.REQUESTED, State.FAILED): "a guard refuses it, its cloud is down, its kind is out of stock, or time is up",
    (State.REQUESTED, State.GONE): "the autoscaler or an operator takes it back before any call was made",
    (State.CREATING, State.BOOTING): "the cloud has accepted it, or a list shows that it had",
    (State.CREATING, State.FAILED): "the cloud refuses it, or time is up",
    (
        State.CREATING,
        State.DELETING,
    ): "the autoscaler or an operator deletes it, and the cloud may hold something of it",
    (State.CREATING, State.GONE): "the autoscaler or an operator deletes it, and the cloud holds nothing of it",
    (State.BOOTING, State.RUNNING): "the cloud says that it runs, and its providerID is known",
    (State.BOOTING, State.FAILED): "the cloud says that it failed or lost it, or time is up",
    (State.BOOTING, State.DELETING): "the autoscaler or an operator deletes it",
    (State.BOOTING, State.GONE): "an operator releases it",
    (State.RUNNING, State.FAILED): "its node did not join the cluster in time",
    (State.RUNNING, State.DELETING): "the autoscaler or an operator deletes it, or it is broken and is being replaced",
    (State.RUNNING, State.GONE): "the cloud does not have it any more, or an operator releases it",
    (
        State.FAILED,
        State.DELETING,
    ): "the autoscaler or an operator deletes it, or its time is up, and the cloud may hold something",
    (
        State.FAILED,
        State.GONE,
    ): (
        "the autoscaler or an operator deletes it, or its time is up, and the cloud holds nothing of it; "
        "or an operator releases it"
    ),
    (State.FAILED, State.BOOTING): "its node is ready: it counted as failed while its cloud or its node was not seen",
    (State.DELETING, State.GONE): "the cloud does not have it any more, or an operator releases it",
    (
        State.GONE,
        State.BOOTING,
    ): "its cloud still has it, and an operator takes it back, or its deletion was never ordered",
}

# Law 5: the state that the autoscaler sees; a gone machine is not listed.
SHOWN: Final[Mapping[State, InstanceState]] = {
    State.REQUESTED: InstanceState.CREATING,
    State.CREATING: InstanceState.CREATING,
    State.BOOTING: InstanceState.CREATING,
    State.RUNNING: InstanceState.RUNNING,
    State.FAILED: InstanceState.CREATING,  # with its error
    State.DELETING: InstanceState.DELETING,
}

# Law 5: the target is the number of machines in these states.
COUNTED: Final[frozenset[State]] = frozenset(
    {State.REQUESTED, State.CREATING, State.BOOTING, State.RUNNING, State.FAILED}
)

_MOVING: Final[frozenset[State]] = frozenset({State.CREATING, State.BOOTING, State.DELETING})


RELEASED: Final = "released"  # the error code of a released machine that its cloud no longer has
LOST: Final = "lost"  # the error code of a machine that ran, vanished from its cloud's lists, and was never deleted


def is_lost(record: MachineRecord) -> bool:
    """Whether it is gone only because its cloud stopped listing it: if it shows up again, it is wanted."""
    return record.state is State.GONE and record.error is not None and record.error.code == LOST


VANISHED: Final = "vanished"  # the error code of a machine that vanished from lists before it ran


def has_vanished(record: MachineRecord) -> bool:
    """Whether it failed because its cloud stopped listing it, and is gone."""
    return record.state is State.GONE and record.error is not None and record.error.code == VANISHED


EXPIRED: Final = "expired"  # the error code of a failed machine that the autoscaler did not delete in time
REPAIRED: Final = "repaired"  # the error code of a broken machine that was replaced


def has_failed(record: MachineRecord) -> bool:
    """Whether it failed and is gone: no deletion of a running machine was ordered."""
    failed = record.error is not None and record.error.code not in (LOST, RELEASED, REPAIRED)
    return record.state is State.GONE and failed


def give_up(record: MachineRecord, now: float, code: str, why: str) -> MachineRecord:
    """The record of a machine that the engine decides to delete; the code is one of the two above."""
    return move(record, State.DELETING, now, error=ErrorRecord(code=code, message=why, error_class=ErrorClass.OTHER))


def delete(record: MachineRecord, now: float) -> MachineRecord:
    """The record of a machine whose deletion is ordered: deleting, or gone where the cloud holds nothing of it."""
    return move(record, State.GONE if record.presence is Presence.NONE else State.DELETING, now)


def is_given_up(record: MachineRecord) -> bool:
    """Whether the engine decided to delete it, without an order."""
    if record.state is State.FAILED:
        return True
    return record.state is State.DELETING and record.error is not None and record.error.code in (EXPIRED, REPAIRED)


def is_released(record: MachineRecord) -> bool:
    """Whether an operator released it and its cloud still has it. The engine never touches it."""
    return record.state is State.GONE and record.presence is Presence.PRESENT


def may_cost(record: MachineRecord) -> bool:
    """Whether its cloud may have the machine and charge for it now; not one that an operator released."""
    return record.state is State.CREATING or (record.presence is not Presence.NONE and not is_released(record))


def was_released(record: MachineRecord) -> bool:
    """Whether an operator released it, even if its cloud has stopped listing it since."""
    is_over = record.state is State.GONE and record.error is not None and record.error.code == RELEASED
    return is_over or is_released(record)


def was_found(record: MachineRecord) -> bool:
    """Whether it existed before the journal knew it, or showed up again: then its history is unknown.

    A machine that the engine orders is requested before it is created.
    """
    return record.attempt_at is None or record.ordered_at is None or record.ordered_at <= record.requested_at


def is_moving(record: MachineRecord) -> bool:
    """Whether it is changing in a way that a list of its cloud will show."""
    if record.state in _MOVING:
        return True
    return record.state is State.FAILED and record.presence is not Presence.NONE


def begin(record: MachineRecord) -> MachineRecord:
    """The first version of a record; raises InternalError for a state in which none may begin."""
    if record.state not in BEGINNINGS:
        raise InternalError(f"machine {record.name} cannot begin its life as {record.state.value}")
    return replace(record, version=1)


def move(record: MachineRecord, state: State, now: float, **changes: Any) -> MachineRecord:
    """The record in its next state; raises InternalError when the table does not allow the transition."""
    if (record.state, state) not in TRANSITIONS:
        raise InternalError(f"machine {record.name} cannot go from {record.state.value} to {state.value}")
    if state is State.GONE:
        changes.setdefault("gone_at", now)
    return replace(record, state=state, state_since=now, version=record.version + 1, **changes)


def amend(record: MachineRecord, **changes: Any) -> MachineRecord:
    """The record in the same state, with changed data."""
    return replace(record, version=record.version + 1, **changes)
