"""Validates a driver's response to a call, and applies the outcome to the machine. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines.decide import Move, failure
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import amend, move
from cloudgraft.sdk.common.backoff import pause_after
from cloudgraft.sdk.driver import Machine, MachineState, Price, Shape
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, InternalError, NotFoundError, Retry
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint
from cloudgraft.store.records import MachineRecord, Presence, State

# -- responses of drivers ----------------------------------------------------------------------------------------------


T = TypeVar("T")


def check_machine(answer: object, call: str) -> Machine:
    """Validates a machine of a driver's response; ``call`` names the call in the message."""
    if not isinstance(answer, Machine) or not isinstance(answer.machine_id, str) or not answer.machine_id:
        raise InternalError(f"the driver's {call} did not answer with a Machine that has a machine_id")
    if not is_storable(answer.machine_id):
        raise _nonsense(answer, call, "machine_id", "has characters that cannot be stored: NUL or half of a pair")
    if not isinstance(answer.name, str):
        raise _nonsense(answer, call, "name", "is not a str")
    if answer.provider_id is not None and not isinstance(answer.provider_id, str):
        raise _nonsense(answer, call, "provider_id", "is neither a str nor None")
    if answer.provider_id and not is_storable(answer.provider_id):
        raise _nonsense(answer, call, "provider_id", "has characters that cannot be stored: NUL or half of a pair")
    if not isinstance(answer.state, MachineState):
        raise _nonsense(answer, call, "state", "is not a MachineState")
    if not isinstance(answer.tags, dict) and not isinstance(answer.tags, Mapping):
        raise _nonsense(answer, call, "tags", "is not a mapping")
    if answer.created_at is not None and not _is_time(answer.created_at):
        raise _nonsense(answer, call, "created_at", "is neither None nor a datetime that this system can count")
    if answer.addresses and not _is_texts(answer.addresses):
        raise _nonsense(answer, call, "addresses", "is not a sequence of str")
    return answer


def _is_texts(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return all(isinstance(one, str) for one in value)


def is_storable(text: str) -> bool:
    """Whether every database can store the text: no NUL, and no half of a surrogate pair."""
    if text.isascii():
        return "\0" not in text
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, datetime) and value.timestamp() is not None
    except (OverflowError, ValueError, OSError):  # a naive datetime of the year 1
        return False


def _nonsense(machine: Machine, call: str, field: str, what: str) -> InternalError:
    return InternalError(f"the driver's {call} answered with machine {machine.machine_id!r} whose {field} {what}")


def check_shapes(answer: object) -> Sequence[Shape]:
    """Validates a driver's machine types."""
    shapes = _all_are(Shape, answer, "shapes()")
    for shape in shapes:
        is_named = isinstance(shape.name, str) and isinstance(shape.labels, Mapping)
        amounts = shape.capacity.values() if isinstance(shape.capacity, Mapping) else [None]
        if not is_named or not all(isinstance(amount, Quantity) for amount in amounts):
            raise InternalError(f"the driver's shapes() has {shape.name!r}, whose capacity is not made of Quantity")
        if not isinstance(shape.taints, Sequence) or not all(_is_taint(taint) for taint in shape.taints):
            effects = ", ".join(TAINT_EFFECTS)
            raise InternalError(
                f"the driver's shapes() has {shape.name!r}, whose taints are not made of Taint, each with a key and an "
                f"effect that is one of {effects}"
            )
        if not isinstance(shape.problem, str):
            raise InternalError(f"the driver's shapes() has {shape.name!r}, whose problem is not a str")
        check_shapes(shape.variants)
    return shapes


def _is_taint(value: object) -> bool:
    return isinstance(value, Taint) and isinstance(value.key, str) and bool(value.key) and value.effect in TAINT_EFFECTS


def check_prices(answer: object) -> Sequence[Price]:
    """Validates a driver's prices."""
    prices = _all_are(Price, answer, "prices()")
    for price in prices:
        is_number = isinstance(price.hourly, Decimal | int | float) and math.isfinite(price.hourly)
        if not is_number or not isinstance(price.currency, str) or not is_storable(price.currency):
            raise InternalError(f"the driver's prices() has {price.shape!r} without a Decimal, or without a currency")
    return prices


def _all_are(kind: type[T], answer: object, call: str) -> Sequence[T]:
    if not isinstance(answer, Sequence) or not all(isinstance(one, kind) for one in answer):
        raise InternalError(f"the driver's {call} did not answer with a sequence of {kind.__name__}")
    return answer


USER_DATA: Final = "user_data"  # the error code of a machine whose user data could not be made


@dataclass(frozen=True, slots=True)
class Created:
    """The cloud has accepted to create the machine."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class CreateFailed:
    """The cloud refused, or did not answer."""

    error: CloudgraftError


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The cloud was not called: the machine's user data could not be made."""

    error: CloudgraftError


@dataclass(frozen=True, slots=True)
class Deleted:
    """The cloud has accepted to delete this machine; a list will show when it is gone."""

    machine_id: str


@dataclass(frozen=True, slots=True)
class DeleteFailed:
    """The cloud refused to delete this machine, or did not answer."""

    machine_id: str
    error: CloudgraftError


Outcome = Created | CreateFailed | NotAsked | Deleted | DeleteFailed


def check_created(answer: object, name: str) -> Machine:
    """Validates a driver's response to create. If it is invalid, the outcome is as unknown as after any other bug."""
    return check_machine(answer, f"create() of {name}")


def after(record: MachineRecord, outcome: Outcome, now: float) -> Move | None:
    """The new record; None when the record stays unchanged."""
    match outcome:
        case Created(machine):
            return _after_created(record, machine, now)
        case CreateFailed(error):
            return _after_refusal(record, error, now)
        case NotAsked(error):
            return _after_nothing(record, error, now)
        case DeleteFailed(machine_id, NotFoundError()) if machine_id == record.machine_id:
            if record.state is State.DELETING:
                return Move(
                    move(record, State.GONE, now, presence=Presence.NONE), "the cloud says that it is not there"
                )
            if record.presence is not Presence.NONE:
                return Move(amend(record, presence=Presence.NONE), "the cloud says that it is not there", kind=None)
    return None


def _after_created(record: MachineRecord, machine: Machine, now: float) -> Move | None:
    if record.presence is not Presence.UNKNOWN or record.state is State.GONE:
        return None  # a list came first
    changes = {"presence": Presence.PRESENT, "machine_id": machine.machine_id}
    if machine.provider_id:
        changes["provider_id"] = machine.provider_id
    if record.state is State.CREATING:
        return Move(move(record, State.BOOTING, now, **changes), "the cloud has accepted it")
    return Move(amend(record, **changes), "the cloud created it after it was given up; it is being removed", kind=None)


def _after_nothing(record: MachineRecord, error: CloudgraftError, now: float) -> Move | None:
    """No call was made: it counts neither as an attempt nor against a guard, and its outcome is certain."""
    if record.presence is not Presence.UNKNOWN:
        return None
    unsent: dict[str, Any] = {"presence": Presence.NONE, "attempts": record.attempts - 1}
    if record.attempts == 1:
        unsent["ordered_at"] = None
    message = f"its user data could not be made: {error.message}"
    if record.state is not State.CREATING:
        return Move(amend(record, **unsent), message, kind=None)
    if error.retry is Retry.NO:
        return Move(move(record, State.FAILED, now, error=failure(USER_DATA, message), **unsent), message)
    return Move(amend(record, **unsent), f"it will be tried again: {message}", "retry")


def _after_refusal(record: MachineRecord, error: CloudgraftError, now: float) -> Move | None:
    if record.presence is not Presence.UNKNOWN or isinstance(error, AlreadyExistsError):
        return None  # what exists is ours from an earlier attempt, or not ours: a list will show
    why = failure(error.slug, error.message, error.error_class)
    if error.is_final and record.state is State.CREATING:
        # Law 7: it is reported now. Law 3: its presence stays unknown, so lists find a machine that was made after all.
        return Move(move(record, State.FAILED, now, error=why), error.message)
    if error.is_final or not error.nothing_done:
        return None  # a list will show whether it exists
    if record.state is State.CREATING and error.retry is Retry.NO:
        return Move(move(record, State.FAILED, now, presence=Presence.NONE, error=why), error.message)
    if record.state is State.CREATING:
        return Move(amend(record, presence=Presence.NONE), f"it will be tried again: {error.message}", "retry")
    return Move(amend(record, presence=Presence.NONE), f"the cloud did not create it: {error.message}", kind=None)


def after_call(
    observation: Observation, outcome: Outcome, *, attempts: int, settings: CloudSettings, now: float
) -> Observation:
    """What is known of a machine after a call about it; ``attempts`` is the number of calls to create it so far.

    An outcome also takes back what earlier lists showed: a create makes their absences void, and after a delete an
    unseen machine is not known to be ours: a list shows what exists now.
    """
    calls, listed = replace(observation.calls, is_open=False), observation.listed
    match outcome:
        case Created():
            calls = replace(calls, retry_at=0.0, trouble="", unprepared=0)
            return replace(observation, since=now, calls=calls, listed=replace(listed, absences=0, is_ours=True))
        case CreateFailed(error):
            calls = replace(calls, trouble=error.message, retry_at=now + delay(settings, attempts, error.retry_after))
            listed = replace(listed, absences=0)
        case NotAsked(error):
            failures = calls.unprepared + 1
            calls = replace(
                calls,
                unprepared=failures,
                trouble=f"its user data could not be made: {error.message}",
                retry_at=now + delay(settings, failures, error.retry_after),
            )
        case Deleted():
            deletes = calls.deletes + 1
            calls = replace(calls, deletes=deletes, deleted_at=now, retry_at=now + delay(settings, deletes + 2))
            listed = replace(listed, is_ours=listed.is_ours and listed.machine is not None)
        case DeleteFailed(machine_id, error):
            failures = calls.failures + 1
            is_unknown = error.retry is Retry.SETTLE_FIRST
            calls = replace(
                calls,
                failures=failures,
                deleted_at=now if is_unknown else calls.deleted_at,
                retry_at=now + delay(settings, failures, error.retry_after),
            )
            listed = replace(listed, is_ours=listed.is_ours and listed.machine is not None)
            if isinstance(error, NotFoundError):
                listed = listed.without(machine_id)
    return replace(observation, calls=calls, listed=listed)


# -- retry delays ------------------------------------------------------------------------------------------------------


LONGEST_HINT: Final = 3600.0  # seconds: a longer retry-after is taken for a mistake
_HURRY: Final = 5  # factor by which a cloud is listed more often while something is under way


def delay(settings: CloudSettings, failures: int, hint: float | None = None) -> float:
    """Seconds to wait after that many failures: exponential backoff up to a limit, with jitter.

    ``hint`` is the cloud's own retry-after: the delay is not shorter, up to the limit of :func:`hinted`.
    """
    first, longest = settings.backoff_initial.total_seconds(), settings.backoff_max.total_seconds()
    return max(pause_after(failures, first=first, longest=longest, spread=0.5), hinted(hint))


def hinted(seconds: float | None) -> float:
    """A cloud's retry-after, capped: no header may delay a call for ever. Zero for anything but a positive number."""
    is_time = isinstance(seconds, int | float) and seconds > 0  # drivers are written by others
    return min(float(seconds or 0), LONGEST_HINT) if is_time else 0.0


def until_next_list(settings: CloudSettings, failures: int, hint: float | None, *, is_hurried: bool) -> float:
    """Seconds until a cloud is listed again, after that many consecutive failures.

    A single failure may be bad luck, so the next list comes soon, unless the cloud sent a retry-after.
    """
    every = settings.observe_every.total_seconds()
    if failures > 1:
        return max(every, delay(settings, failures, hint))
    if failures == 1:
        return max(every / _HURRY, hinted(hint))
    return every / _HURRY if is_hurried else every
