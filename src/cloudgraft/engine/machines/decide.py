"""Decides the next action for one machine: a pure function of its record, its observation, and the clock.

No I/O and no state; the worker carries out the decision. In each function the first rule that applies wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID
from cloudgraft.engine.machines.observation import LONGEST_GAP, Observation
from cloudgraft.engine.machines.states import (
    EXPIRED,
    LOST,
    RELEASED,
    VANISHED,
    amend,
    give_up,
    has_failed,
    is_given_up,
    is_lost,
    is_released,
    move,
    was_found,
    was_released,
)
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import ErrorClass, error_from_slug
from cloudgraft.store.records import ErrorRecord, MachineRecord, Presence, State

DOUBLE: Final = "double"  # the kind of the events
_WANTED: Final = frozenset({State.REQUESTED, State.CREATING, State.BOOTING, State.RUNNING})
JOIN_DEADLINE: Final = "join_deadline"  # the error code
RETURNED: Final = "returned"  # the kind of events about machines that counted as gone and exist


@dataclass(frozen=True, slots=True)
class Stay:
    """Nothing to do now; decide again at ``wake_at`` at the latest, or when something changes."""

    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Write this record: its state or its data have changed."""

    record: MachineRecord
    cause: str
    kind: str | None = "state"  # of the event about it; None for no event


@dataclass(frozen=True, slots=True)
class Create:
    """Call the cloud to create the machine, after the journal has recorded it."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Call the cloud to delete this machine."""

    machine: Machine
    cause: str = ""  # set when it is not the record's own machine, or the record is gone
    kind: str = ""


_THERE = frozenset({MachineState.PENDING, MachineState.RUNNING, MachineState.STOPPED})

Decision: TypeAlias = Stay | Move | Create | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state of the machine's cloud and group at this moment."""

    now: float
    settings: EngineSettings
    may_create: bool = True  # False until the cloud has been listed since we started
    sees_cloud: bool = True  # False while the latest list failed
    sees_nodes: bool = True  # False while there is a cluster whose data are not fresh
    is_used: bool = False  # a machine that counted as gone exists, and its node is ready
    is_paused: bool = False
    is_served: bool = True  # False: the group no longer exists
    refusal: ErrorRecord | None = None  # why this group cannot get a machine at the moment


def failure(code: str, message: str, error_class: int = ErrorClass.OTHER) -> ErrorRecord:
    """Why a machine failed. The code is never empty: the autoscaler reads an empty one as "no error"."""
    return ErrorRecord(code=code or "error", message=message, error_class=int(error_class))


def decide(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """The next action for this machine."""
    if was_released(record):
        return _released(record, known, at)
    if is_outdone(record, known):
        return Stay()
    own = _RULES[record.state](record, known, at)
    if isinstance(own, Move):
        return own  # first: the record must have the id of the machine that is kept
    extra = _extra(record, known, at)
    # Alternate between both: a machine that ignores its deletion must not keep the other alive.
    is_own_turn = isinstance(own, Delete) and (known.calls.deletes + known.calls.failures) % 2 == 1
    return own if extra is None or is_own_turn else extra


def _extra(record: MachineRecord, known: Observation, at: Situation) -> Decision | None:
    """Law 3: deletes a second machine for the same intent, whatever state the first is in."""
    if (
        not known.listed.extras
        or known.calls.is_open
        or known.is_deletion_open
        or at.is_paused
        or not at.sees_cloud
        or at.now < known.calls.retry_at
    ):
        return None
    other = surplus(record, known, sees_nodes=at.sees_nodes)
    if other is None:
        return None
    kept = known.listed.machine.machine_id if known.listed.machine else record.machine_id
    cause = f"the cloud made a second machine, {other.machine_id}, for one intent; {kept} is kept"
    return Delete(other, cause, DOUBLE)


def _requested(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    seen = known.listed.machine
    if seen is not None:
        return _accepted(record, seen, at, "the cloud already has a machine of this name with our marks")
    if known.node.is_named:
        return Stay()  # it exists, whatever the lists of its cloud show
    deadline = _own_deadline(record, known, at)
    if at.now >= deadline:
        return _failed(record, at, _why_not_created(known, "no call to create it could be made in time"))
    if at.refusal is not None:
        return _failed(record, at, at.refusal)
    if known.listed.unproven is not None or at.is_paused or not at.may_create:
        return Stay(deadline)
    return Create()


def _creating(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    if known.listed.machine is not None:
        return _accepted(record, known.listed.machine, at, "a list shows that the cloud has accepted it")
    if known.calls.is_open or known.node.is_named:
        return Stay()  # the answer or the timeout will come; or it exists, whatever the lists of its cloud show
    is_unknown = record.presence is Presence.UNKNOWN
    # When it fails, the engine deletes what the cloud may have. So only observed time counts here (see _is_overdue).
    deadline = None if is_unknown else _own_deadline(record, known, at)
    if _is_overdue(known, at) if deadline is None else at.now >= deadline:
        return _failed(record, at, _why_not_created(known, "the cloud did not create it in time"))
    if is_unknown and known.listed.is_absent:
        return Move(
            amend(record, presence=Presence.NONE), "two complete lists do not have it: it was not created", kind=None
        )
    # Do not create a machine again while one has its name: its marks may come late.
    if is_unknown or known.listed.unproven is not None or at.is_paused or not at.may_create:
        return Stay(deadline)
    retry_at = known.calls.retry_at
    return Create() if at.now >= retry_at else Stay(min(retry_at, deadline or retry_at))


def _why_not_created(known: Observation, otherwise: str) -> ErrorRecord:
    if known.listed.unproven is None:
        return failure("deadline", f"{otherwise}: {known.calls.trouble}" if known.calls.trouble else otherwise)
    return failure(
        "unproven",
        f"the cloud has a machine of this name ({known.listed.unproven.machine_id}) that does not show our marks, "
        "so it is not touched; see `cloudgraft orphans list`",
    )


def _booting(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """A machine that fails here is deleted, also when a list shows it again. So none fails whose node may be ready.

    A found machine may have run before and have pods: the autoscaler decides what to do when its cloud reports it dead.
    """
    seen, may_fail = known.listed.machine, at.sees_nodes and not known.node.may_be_ready
    if seen is not None:
        news = _news(record, seen, known)
        if seen.state is MachineState.RUNNING and (seen.provider_id or record.provider_id):
            return Move(move(record, State.RUNNING, at.now, **news), "the cloud says that it runs")
        if seen.state in (MachineState.DELETING, MachineState.FAILED) and may_fail and not _was_there_before(record):
            why = seen.reason or f"the cloud reports it as {seen.state.value} before it ran"
            return _failed(record, at, _boot_failure(seen, why), **news)
        if news:
            return Move(amend(record, **news), "the cloud tells more of it", kind=None)
    elif known.listed.is_absent and may_fail:
        why = "it disappeared from its cloud before it ran"
        return _failed(record, at, failure(VANISHED, why), presence=Presence.NONE)
    if _is_overdue(known, at) and may_fail and not _was_there_before(record):
        state = f", the cloud reports it as {seen.state.value}" if seen else ""
        reason = f": {seen.reason}" if seen and seen.reason else ""
        return _failed(record, at, failure("deadline", f"it did not run in time{state}{reason}"))
    return Stay()


def _was_there_before(record: MachineRecord) -> bool:
    """Whether the machine was created before the journal took it in, or took it back."""
    return record.ordered_at is not None and record.ordered_at < record.requested_at


def _is_overdue(known: Observation, at: Situation) -> bool:
    """Whether lists have covered the machine for the whole deadline, and the data of the cluster are fresh.

    A machine that fails is deleted. So an outage, a restart or a clock change must not make it late.
    """
    return at.sees_cloud and at.sees_nodes and known.listed.awaited_for >= at.settings.create_deadline.total_seconds()


def _own_deadline(record: MachineRecord, known: Observation, at: Situation) -> float:
    """When a machine fails that the cloud does not have: by this process's clock, cloud reachable or not (law 7)."""
    return max(record.requested_at, known.since) + at.settings.create_deadline.total_seconds()


def _boot_failure(seen: Machine, why: str) -> ErrorRecord:
    """The driver's own error, if it has one: many clouds accept a create and find out later that they are full."""
    known = error_from_slug(seen.failure) if seen.state is MachineState.FAILED else None
    return failure("boot_failed", why) if known is None else failure(known.slug, why, known.error_class)


def _running(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    if known.listed.is_absent:
        why = "two complete lists of its cloud do not have it any more"
        return Move(move(record, State.GONE, at.now, presence=Presence.NONE, error=failure(LOST, why)), why)
    news = _news(record, known.listed.machine, known) if known.listed.machine else {}
    if news:
        return Move(amend(record, **news), "the cloud tells more of it", kind=None)
    return _joining(record, known, at)


def _joining(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """A machine without a node is useless, but only time in which the cluster could be seen counts against it.

    A machine whose node has been removed is left to the autoscaler, which deletes unregistered machines: its pods may
    still run, and there may be a reason for the removal. So is a machine whose deadline passed before we began to
    observe it, or that we only found: then a node that we do not see says more about our view than about the machine.
    """
    if known.node.joined is not False or known.node.has_joined or was_found(record):
        return Stay()
    if known.since - record.state_since >= at.settings.join_deadline.total_seconds():
        return Stay()
    left = at.settings.join_deadline.total_seconds() - known.node.unjoined_for
    if left <= 0:
        return _failed(record, at, failure(JOIN_DEADLINE, "its node did not join the cluster in time"))
    return Stay(at.now + left)


def _failed_state(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """Deletes its resources at once. The machine stays listed until the autoscaler deletes it, or it expires (law 5).

    Unless its node is ready: then the machine works, and the reason for the failure was wrong.
    """
    seen = known.listed.machine
    if seen is not None and known.node.is_ready and at.sees_nodes and _is_there(known):
        return _taken_back(record, seen, known, at, "it counted as failed, and its node is ready: it is kept")
    expires = record.state_since + at.settings.failed_ttl.total_seconds()
    if at.now >= expires:
        if record.presence is Presence.NONE:
            return Move(move(record, State.GONE, at.now), "it was not deleted for as long as a failed machine is kept")
        why = record.error.message if record.error else "it failed"
        return Move(give_up(record, at.now, EXPIRED, why), "its time as a failed machine is up; it is still removed")
    decision = _clear(record, known, at)
    if isinstance(decision, Stay):
        return Stay(expires if decision.wake_at is None else min(expires, decision.wake_at))
    return decision


def _deleting(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    if record.presence is Presence.NONE:
        return Move(move(record, State.GONE, at.now), "the cloud holds nothing of it")
    return _clear(record, known, at)


def _gone(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """Handles a gone machine that shows up: a create that succeeded late, or lists that were wrong.

    Its ownership has to be proven again, and its id alone is no proof (see ``look``).
    The engine takes back a machine that was never ordered to be deleted: two wrong lists must not cost a machine and
    its pods. It also takes back a machine that counted as failed while no list showed it, if its node is ready: the
    autoscaler only removed it because we reported it as failed. If it is not needed, the autoscaler drains it.
    A machine that cannot be taken back is left alone while its node is or may be ready: its group may be gone, or its
    cloud may report it broken.
    """
    seen, was_ordered = known.listed.machine, not (is_lost(record) or has_failed(record))
    is_wanted = is_lost(record) or (has_failed(record) and at.is_used and at.sees_nodes)
    if is_wanted and at.is_served and seen is not None and _is_there(known):
        why = "its cloud shows it again, and nobody had deleted it: it is taken back"
        if has_failed(record):
            why = "it counted as failed, and its node is ready: it is taken back"
        return _taken_back(record, seen, known, at, why)
    if (
        seen is None
        or not known.listed.is_ours
        or seen.state is MachineState.DELETING
        or known.calls.is_open
        or at.is_paused
    ):
        return Stay()
    if known.is_deletion_open or not at.sees_cloud:
        return Stay()  # a list will show whether it still exists, and is still the same
    if not was_ordered and (at.is_used or not at.sees_nodes):
        return Stay()  # it may be in use, and its deletion was not ordered
    if at.now < known.calls.retry_at:
        return Stay(known.calls.retry_at)
    return Delete(seen, f"machine {seen.machine_id} is there although its deletion was over", RETURNED)


def _is_there(known: Observation) -> bool:
    """Whether the cloud has the machine, and it is ours."""
    seen = known.listed.machine
    return seen is not None and known.listed.is_ours and seen.state in _THERE


def _taken_back(record: MachineRecord, seen: Machine, known: Observation, at: Situation, why: str) -> Move:
    found = {"presence": Presence.PRESENT, "error": None, "gone_at": None, "requested_at": at.now}
    return Move(move(record, State.BOOTING, at.now, **found, **_news(record, seen, known)), why)


def left_alone(record: MachineRecord, known: Observation) -> str:
    """The message about a gone machine that is left alone because its node may be ready; empty for any other."""
    if known.listed.machine is None or not (is_lost(record) or has_failed(record)):
        return ""
    id_, state = known.listed.machine.machine_id, known.listed.machine.state.value
    return (
        f"machine {id_} counted as gone and is there, its cloud reports it as {state}, and "
        f"its node is ready, so it is left alone. Adopt it with `cloudgraft adopt {record.group} {id_}`, or delete it "
        "in its cloud"
    )


def _released(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """A release holds while the cloud has the machine. After that the record is forgotten like any other.

    The release holds until then: two wrong lists must not make the machine ours again. So the record is kept from now
    on for as long as that of a gone machine, however long ago the machine was released.
    """
    if known.listed.is_absent and is_released(record):
        why = "the cloud does not have it any more"
        gone = {"presence": Presence.NONE, "gone_at": at.now}
        return Move(amend(record, error=failure(RELEASED, why), **gone), why, kind=None)
    return Stay()


def _clear(record: MachineRecord, known: Observation, at: Situation) -> Decision:
    """Deletes an unwanted machine in its cloud."""
    if known.calls.is_open:
        return Stay()
    settled = _settled(record, known)
    if settled is not None:
        return settled
    seen = known.listed.machine
    is_going = seen is not None and seen.state is MachineState.DELETING
    if record.presence is not Presence.PRESENT or at.is_paused or is_going or not known.listed.is_ours:
        return Stay()
    if known.is_deletion_open or not _may_clear(record, known, at):
        return Stay()  # a list will show whether it still exists, and is still the same
    return Delete(seen or _as_known(record)) if at.now >= known.calls.retry_at else Stay(known.calls.retry_at)


def _may_clear(record: MachineRecord, known: Observation, at: Situation) -> bool:
    """Whether an unwanted machine may be deleted now.

    A machine that the engine gave up is deleted only while lists work, and not while its node may be ready. A machine
    that the autoscaler deletes is deleted at once, unless a long outage has made the proof of ownership old: by then
    the cloud may have given the id to another machine.
    """
    if not is_given_up(record):
        proven_at = known.since if known.listed.at is None else known.listed.at
        return at.sees_cloud or at.now - proven_at <= LONGEST_GAP
    is_kept = record.state is State.FAILED and known.node.may_be_ready
    return at.sees_cloud and known.listed.at is not None and at.sees_nodes and not is_kept


def _settled(record: MachineRecord, known: Observation) -> Move | None:
    """Records what lists have shown about an unwanted machine."""
    seen = known.listed.machine
    if seen is not None:
        found = {"presence": Presence.PRESENT, "machine_id": seen.machine_id}
        if (record.presence, record.machine_id) == (Presence.PRESENT, seen.machine_id):
            return None
        return Move(amend(record, **found), "a list shows that the cloud had created it", kind=None)
    if known.listed.is_absent and record.presence is not Presence.NONE:
        return Move(amend(record, presence=Presence.NONE), "the cloud does not have it any more", kind=None)
    return None


def _accepted(record: MachineRecord, seen: Machine, at: Situation, cause: str) -> Decision:
    changes = {"presence": Presence.PRESENT, "machine_id": seen.machine_id}
    if seen.provider_id:
        changes["provider_id"] = seen.provider_id
    ordered = record.ordered_at if record.ordered_at is not None else at.now
    return Move(move(record, State.BOOTING, at.now, ordered_at=ordered, **changes), cause)


def _failed(record: MachineRecord, at: Situation, error: ErrorRecord, **changes: Any) -> Decision:
    return Move(move(record, State.FAILED, at.now, error=error, **changes), error.message)


def _news(record: MachineRecord, seen: Machine, known: Observation) -> dict[str, Any]:
    """The cloud's data about a machine that its record does not have yet."""
    news: dict[str, Any] = {}
    if seen.machine_id != record.machine_id:
        news["machine_id"] = seen.machine_id
    if seen.provider_id and seen.provider_id != record.provider_id:
        news["provider_id"] = seen.provider_id
    return {**news, **_proof(record, seen)} if record.is_adopted and known.listed.is_ours else news


def _proof(record: MachineRecord, seen: Machine) -> dict[str, Any]:
    """The proof of an adopted machine, if the record lacks it: older releases did not store it."""
    proof: dict[str, Any] = {}
    if record.created_at is None and seen.created_at is not None:
        proof["created_at"] = seen.created_at.timestamp()
    if not record.is_marked and TAG_CLUSTER_ID in seen.tags:
        proof["is_marked"] = True
    return proof


def _as_known(record: MachineRecord) -> Machine:
    return Machine(
        name=record.name,
        machine_id=record.machine_id,
        provider_id=record.provider_id or None,
        tags=record.tags,
    )


_RULES = {
    State.REQUESTED: _requested,
    State.CREATING: _creating,
    State.BOOTING: _booting,
    State.RUNNING: _running,
    State.FAILED: _failed_state,
    State.DELETING: _deleting,
    State.GONE: _gone,
}


# -- duplicates (law 3) ------------------------------------------------------------------------------------------------
# A machine that joined the cluster may run pods. So no machine with a node is deleted while the kept machine has no
# ready node, and none that may have a node is deleted while it is unclear which machine the node belongs to.


def surplus(record: MachineRecord, known: Observation, *, sees_nodes: bool) -> Machine | None:
    """The duplicate that may be deleted now. If the intent is no longer wanted, all of its machines are deleted."""
    there = [machine for machine in known.listed.extras if machine.state is not MachineState.DELETING]
    if _is_wanted(record):
        if not sees_nodes:
            return None
        there = [machine for machine in there if not _may_be_in_use(machine, known)]
    return there[0] if there else None


def is_outdone(record: MachineRecord, known: Observation) -> bool:
    """Whether another of its machines has joined since the latest list: the next list makes it the record's own."""
    if known.listed.machine is None or not _is_wanted(record):
        return False
    others = {machine.machine_id for machine in known.listed.extras}
    rivals = known.node.rivals
    return known.listed.machine.machine_id not in rivals.any and not others.isdisjoint(rivals.ready)


def in_doubt(record: MachineRecord, known: Observation) -> str:
    """The message for an operator when it is unclear which of the machines has joined; empty when it is clear."""
    there = [machine for machine in known.listed.extras if machine.state is not MachineState.DELETING]
    held = [machine.machine_id for machine in there if _may_be_in_use(machine, known)]
    if known.listed.machine is None or not held or not _is_wanted(record) or is_outdone(record, known):
        return ""
    return (
        f"its cloud has more than one machine for one intent, {known.listed.machine.machine_id} and {', '.join(held)}, "
        "and nodes of the cluster do not tell which of them to keep, so that none is deleted. Find out which is in "
        "use, and delete the others in the cloud"
    )


def _may_be_in_use(machine: Machine, known: Observation) -> bool:
    kept = known.listed.machine
    is_kept_ready = kept is not None and kept.machine_id in known.node.rivals.ready
    return not is_kept_ready and machine.machine_id in known.node.rivals.any


def _is_wanted(record: MachineRecord) -> bool:
    return record.state in _WANTED or is_lost(record)
