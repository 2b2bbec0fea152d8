"""Defines the status codes of drivers that dial in, and the error that each one means for each call.

The codes are gRPC's own, and one more. The error decides, through the one table of :mod:`cloudgraft.sdk.errors`,
whether and when the engine retries, and what the autoscaler sees. The page ``docs/reference/machine-codes.md`` is
generated from this table.

Law 3 decides the doubtful ones: for a create, a code means "nothing was made" only where the driver cannot have meant
anything else. Every other one leaves the outcome unknown, and a list settles it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)

# the cap for a driver's retry-after: a wrong one would stop the calls for ever
_LONGEST_HEARD: Final = timedelta(hours=1)


class Verb(enum.Enum):
    """The operations of a driver."""

    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    SHAPES = "shapes"
    PRICES = "prices"


class Code(enum.IntEnum):
    """0 to 16 are gRPC's; 17 is the machine controller's own."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
    UNINITIALIZED = 17  # the machine is there, but not initialised


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a code as the end of one call."""

    error: type[CloudgraftError] | None  # None: no failure
    why: str
    # The error when the driver sends a retry-after. Only a driver that knows that nothing was done sends one: a broken
    # connection sends nothing.
    with_retry_after: type[CloudgraftError] | None = None


# Calls that change nothing: no outcome can be unknown, there is only no answer.
_READ: Final[Mapping[Code, Meaning]] = {
    Code.OK: Meaning(None, "it is done"),
    Code.CANCELLED: Meaning(DeadlineError, "it was given up"),
    Code.UNKNOWN: Meaning(InternalError, "the driver does not say what went wrong"),
    Code.INVALID_ARGUMENT: Meaning(InvalidArgumentError, "the machine class is invalid for the driver"),
    Code.DEADLINE_EXCEEDED: Meaning(DeadlineError, "its cloud did not answer in time"),
    Code.NOT_FOUND: Meaning(NotFoundError, "something that the machine class names is not there; not an empty answer"),
    Code.ALREADY_EXISTS: Meaning(InternalError, "no answer to a question"),
    Code.PERMISSION_DENIED: Meaning(PermissionDeniedError, "its cloud refuses"),
    Code.RESOURCE_EXHAUSTED: Meaning(RateLimitedError, "a question uses up nothing but calls"),
    Code.FAILED_PRECONDITION: Meaning(PreconditionError, "not possible in the present state"),
    Code.ABORTED: Meaning(ConflictError, "another call was in the way"),
    Code.OUT_OF_RANGE: Meaning(PreconditionError, "there are more machines of one name than the driver can tell apart"),
    Code.UNIMPLEMENTED: Meaning(UnsupportedError, "the driver cannot do it"),
    Code.INTERNAL: Meaning(InternalError, "a bug of the driver or its cloud"),
    Code.UNAVAILABLE: Meaning(UnavailableError, "its cloud is away or overloaded"),
    Code.DATA_LOSS: Meaning(InternalError, "its cloud has lost something"),
    Code.UNAUTHENTICATED: Meaning(AuthenticationError, "its cloud does not take the credentials"),
    Code.UNINITIALIZED: Meaning(UnavailableError, "the driver is not ready to answer"),
}
_CREATE: Final[Mapping[Code, Meaning]] = {
    **_READ,
    Code.OK: Meaning(None, "the cloud has accepted it"),
    Code.CANCELLED: Meaning(DeadlineError, "given up in the middle: what was done by then is not known"),
    Code.UNKNOWN: Meaning(InternalError, "the driver does not say what went wrong, nor when"),
    Code.DEADLINE_EXCEEDED: Meaning(DeadlineError, "the cloud may still make it"),
    Code.NOT_FOUND: Meaning(NotFoundError, "an image, a network or the like is not there; nothing was made"),
    Code.ALREADY_EXISTS: Meaning(AlreadyExistsError, "ours of an earlier try, or a foreign one: a list shows which"),
    Code.PERMISSION_DENIED: Meaning(PermissionDeniedError, "the cloud refused it"),
    Code.RESOURCE_EXHAUSTED: Meaning(OutOfStockError, "no quota or no stock: another group may have some"),
    Code.FAILED_PRECONDITION: Meaning(PreconditionError, "refused in the present state; nothing was made"),
    Code.ABORTED: Meaning(DeadlineError, "another call for this machine is under way, and may well make it"),
    Code.OUT_OF_RANGE: Meaning(AlreadyExistsError, "there is more than one machine of this name: a list shows them"),
    Code.INTERNAL: Meaning(InternalError, "a bug, before or after the machine was made"),
    Code.UNAVAILABLE: Meaning(
        DeadlineError, "a connection that broke, before or after the cloud was asked", with_retry_after=UnavailableError
    ),
    Code.DATA_LOSS: Meaning(InternalError, "something was lost, perhaps after the machine was made"),
    Code.UNAUTHENTICATED: Meaning(AuthenticationError, "the cloud does not take the credentials; nothing was made"),
    Code.UNINITIALIZED: Meaning(None, "the machine is there, and will be ready later"),
}
_DELETE: Final[Mapping[Code, Meaning]] = {
    **_READ,
    Code.OK: Meaning(None, "the cloud has accepted it; a list shows when the machine is gone"),
    Code.CANCELLED: Meaning(DeadlineError, "given up in the middle; a list shows whether it is gone"),
    Code.DEADLINE_EXCEEDED: Meaning(DeadlineError, "the cloud may still delete it; a list shows"),
    Code.INVALID_ARGUMENT: Meaning(InvalidArgumentError, "the machine's id or class is invalid for the driver"),
    Code.NOT_FOUND: Meaning(NotFoundError, "the machine is gone"),
    Code.ALREADY_EXISTS: Meaning(ConflictError, "it is being deleted already"),
    Code.RESOURCE_EXHAUSTED: Meaning(RateLimitedError, "a deletion uses up nothing but calls"),
    Code.ABORTED: Meaning(ConflictError, "another call for this machine is under way"),
    Code.OUT_OF_RANGE: Meaning(PreconditionError, "there is more than one machine of this name, and none is chosen"),
    Code.UNINITIALIZED: Meaning(ConflictError, "the machine is there, and not ready to be deleted"),
}
_SHAPES: Final[Mapping[Code, Meaning]] = {
    **_READ,
    Code.UNIMPLEMENTED: Meaning(UnsupportedError, "the driver does not know; the machine class is asked"),
}
_PRICES: Final[Mapping[Code, Meaning]] = {
    **_READ,
    Code.UNIMPLEMENTED: Meaning(UnsupportedError, "the driver does not know; the group's own price holds"),
}
_TABLE: Final[Mapping[Verb, Mapping[Code, Meaning]]] = {
    Verb.CREATE: _CREATE,
    Verb.DELETE: _DELETE,
    Verb.LIST: _READ,
    Verb.SHAPES: _SHAPES,
    Verb.PRICES: _PRICES,
}


_SOON: Final = timedelta(seconds=1)
_LONGEST_WAIT: Final = 24 * 3600.0  # seconds


def code_from(number: int) -> Code:
    """The code with that number; UNKNOWN for an undefined one."""
    try:
        return Code(number)
    except ValueError:
        return Code.UNKNOWN


def meaning_of(code: Code, verb: Verb) -> Meaning:
    """The table's entry for a code and a verb."""
    return _TABLE[verb][code]


def error_of(code: Code, message: str, verb: Verb, retry_after: timedelta | None = None) -> CloudgraftError | None:
    """The error that a call ended with; None when it did not fail.

    A successful create must contain the machine: without it, the outcome is unknown.
    """
    meaning = meaning_of(code, verb)
    if meaning.error is None:
        return None
    seconds = None
    if retry_after is not None and retry_after > timedelta(0):
        seconds = min(retry_after, _LONGEST_HEARD).total_seconds()
    kind = meaning.error if seconds is None else meaning.with_retry_after or meaning.error
    return kind(message or f"the driver answered {code.name}: {meaning.why}", retry_after=seconds)


def code_of(error: CloudgraftError) -> Code:
    """The code that a driver sends for an error of the sdk."""
    if isinstance(error, RateLimitedError):
        return Code.UNAVAILABLE  # same status as stockout and quota, but too many calls do not mean too few machines
    return Code(int(error.status))


def retry_after_of(error: CloudgraftError) -> timedelta | None:
    """The time after which a driver asks for a retry.

    Always set where the sdk's error says that nothing was done: this is how the hub knows it.
    """
    seconds = error.retry_after
    if seconds is None or not seconds > 0:  # nor is "not a number"
        return _SOON if isinstance(error, UnavailableError | RateLimitedError) else None
    return timedelta(seconds=min(seconds, _LONGEST_WAIT))


# -- text encoding -----------------------------------------------------------------------------------------------------

_MARK: Final = "machine codes error:"
_GROUPS: Final = 2  # the code and the message
_NAMES: Final[Mapping[Code, str]] = {
    **{code: "".join(word.capitalize() for word in code.name.split("_")) for code in Code},
    Code.OK: "OK",
    Code.CANCELLED: "Canceled",
}
_CODES: Final[Mapping[str, Code]] = {name: code for code, name in _NAMES.items()}


def encode(code: Code, message: str) -> str:
    """Formats an error as the machine controller's drivers do in text-only fields."""
    if _groups(message) is None:  # unbalanced brackets would make the text undecodable
        message = message.replace("[", "(").replace("]", ")")
    return f"{_MARK} code = [{_NAMES[code]}] message = [{message}]"


def decode(text: str) -> tuple[Code, str]:
    """Returns the code and the message of such a text; UNKNOWN for any other text."""
    return decode_coded(text) or (Code.UNKNOWN, text)


def decode_coded(text: str) -> tuple[Code, str] | None:
    """Returns the code and the message of such a text; None for any other text."""
    start = text.find(_MARK)
    groups = _groups(text[start + len(_MARK) :]) if start >= 0 else None
    if groups is None or len(groups) != _GROUPS or groups[0] not in _CODES:
        return None
    return _CODES[groups[0]], groups[1]


def _groups(text: str) -> list[str] | None:
    """The content of the outermost brackets, group by group; None when they are unbalanced."""
    groups: list[str] = []
    depth = start = 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
            if depth == 1:
                start = position + 1
        elif character == "]":
            depth -= 1
            if depth < 0:
                return None
            if depth == 0:
                groups.append(text[start:position])
    return groups if depth == 0 else None
