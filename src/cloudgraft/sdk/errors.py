"""Defines every error, with its gRPC and HTTP status, the autoscaler's error class and the retry rule.

    CloudgraftError
    ├── InvalidArgumentError     the request makes no sense; the same request will never work
    ├── NotFoundError            the named thing does not exist
    ├── AlreadyExistsError       the named thing exists already
    ├── PreconditionError        not possible in the current state
    ├── ConflictError            another caller changed it at the same time
    ├── QuotaExceededError       the account's quota is used up
    ├── OutOfStockError          the cloud has no more of this
    ├── RateLimitedError         too many calls; slow down
    ├── AuthenticationError      the cloud does not know who we are
    ├── PermissionDeniedError    the cloud knows who we are, and refuses the call
    ├── UnavailableError         the other side was not reached, or refused before it acted: NOTHING was done
    ├── DeadlineError            no response, or a server error after the call was sent: the outcome is UNKNOWN
    ├── UnsupportedError         this provider or driver has no such capability
    └── InternalError            a bug, ours or the provider's

Authors raise these and need no others. Any other exception counts as a bug: the caller gets ``INTERNAL`` with an id,
and the log has the details. The class attributes below are the one table that decides the gRPC status, the HTTP
status, the autoscaler's error class and the engine's retries; the page ``docs/reference/errors.md`` is generated from
it.

The most expensive mistake of a driver is a wrong promise. Most classes promise that the call did nothing
(``nothing_done``): the engine then creates the machine again, or reports it as failed, without looking for it. A
driver whose create was carried out and that raises such a class buys a second machine. After a 5xx, a timeout or a lost
connection of a create that was sent, raise DeadlineError. :func:`cloudgraft.sdk.http_error` chooses the class for an
HTTP status.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Self

from cloudgraft.sdk.secrecy import redacted


class StatusCode(enum.IntEnum):
    """gRPC's status codes, by their numbers on the wire."""

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


class ErrorClass(enum.IntEnum):
    """The autoscaler's classes of instance errors. Both make it back the group off and try another."""

    OUT_OF_RESOURCES = 1  # a quota, or a stock-out
    OTHER = 99  # anything else


class Retry(enum.Enum):
    """Whether the same call may be made again without a person's help."""

    NO = "no"
    YES = "yes, with backoff"
    SETTLE_FIRST = "only after a list has shown what really happened"


class CloudgraftError(Exception):
    """The root of the tree. Raise one of the classes below it, not this one: it counts as a bug.

    The message is shown to users and to the autoscaler: say what is wrong and what to do, and keep secrets out.
    """

    status: ClassVar[StatusCode] = StatusCode.INTERNAL
    http_status: ClassVar[int] = 500
    error_class: ClassVar[ErrorClass] = ErrorClass.OTHER
    retry: ClassVar[Retry] = Retry.SETTLE_FIRST
    nothing_done: ClassVar[bool] = False  # the promise that the call changed nothing in the cloud
    slug: ClassVar[str] = "internal"  # its name on the wire and as an instance's error code
    meaning: ClassVar[str] = "a bug; the outcome is unknown"
    is_final: bool = False  # see as_final()

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        # An author may well hand in another exception, or half a surrogate pair, which no log and no wire can take.
        self.message = redacted(str(message).encode("utf-8", "replace").decode())
        super().__init__(self.message)
        self.retry_after = retry_after  # seconds; a hint from the other side

    def as_final(self) -> Self:
        """Marks the error of a create that has failed for good, although the cloud may have made the machine.

        For clouds that report a refusal and a lost response alike. The engine reports the failure to the autoscaler at
        once, whatever :attr:`retry` says, and does not create the machine again. Lists show whether it exists.
        """
        self.is_final = True
        return self


class InvalidArgumentError(CloudgraftError):
    """The request makes no sense; the same request will never work. Nothing was done."""

    status = StatusCode.INVALID_ARGUMENT
    http_status = 400
    retry = Retry.NO
    nothing_done = True
    slug = "invalid_argument"
    meaning = "the request makes no sense, and never will"


class NotFoundError(CloudgraftError):
    """The group, machine or object named does not exist. Nothing was done.

    From delete: the machine is gone. From create: something that it needs is missing, such as its image.
    """

    status = StatusCode.NOT_FOUND
    http_status = 404
    retry = Retry.NO
    nothing_done = True
    slug = "not_found"
    meaning = "the thing named does not exist"


class AlreadyExistsError(CloudgraftError):
    """Something by that name exists already.

    From create it promises nothing: the machine may be ours, from an earlier call whose response was lost. The engine
    looks for it in the list.
    """

    status = StatusCode.ALREADY_EXISTS
    http_status = 409
    retry = Retry.NO
    slug = "already_exists"
    meaning = "something else by that name exists"


class PreconditionError(CloudgraftError):
    """The request is fine, but not possible in the current state. Nothing was done."""

    status = StatusCode.FAILED_PRECONDITION
    http_status = 409
    retry = Retry.NO
    nothing_done = True
    slug = "precondition"
    meaning = "not possible in the present state"


class ConflictError(CloudgraftError):
    """Another caller changed the same thing at the same time. Nothing was done; the engine tries again."""

    status = StatusCode.ABORTED
    http_status = 409
    retry = Retry.YES
    nothing_done = True
    slug = "conflict"
    meaning = "changed by somebody else meanwhile"


class QuotaExceededError(CloudgraftError):
    """The account is not allowed more. Nothing was done; another group may still work."""

    status = StatusCode.RESOURCE_EXHAUSTED
    http_status = 403
    error_class = ErrorClass.OUT_OF_RESOURCES
    retry = Retry.NO
    nothing_done = True
    slug = "quota_exceeded"
    meaning = "the account may not have more"


class OutOfStockError(CloudgraftError):
    """The cloud has no more machines of this kind, here and now. Nothing was done."""

    status = StatusCode.RESOURCE_EXHAUSTED
    http_status = 409
    error_class = ErrorClass.OUT_OF_RESOURCES
    retry = Retry.NO
    nothing_done = True
    slug = "out_of_stock"
    meaning = "the cloud has no more of this kind"


class RateLimitedError(CloudgraftError):
    """The cloud asks for fewer calls. Nothing was done; the engine tries again, not before ``retry_after``."""

    status = StatusCode.RESOURCE_EXHAUSTED
    http_status = 429
    retry = Retry.YES
    nothing_done = True
    slug = "rate_limited"
    meaning = "too many calls, nothing was done"


class AuthenticationError(CloudgraftError):
    """The cloud does not accept our credentials. Nothing was done."""

    status = StatusCode.UNAUTHENTICATED
    http_status = 401
    retry = Retry.NO
    nothing_done = True
    slug = "unauthenticated"
    meaning = "the credentials are not accepted"


class PermissionDeniedError(CloudgraftError):
    """The credentials are accepted, but do not allow this. Nothing was done."""

    status = StatusCode.PERMISSION_DENIED
    http_status = 403
    retry = Retry.NO
    nothing_done = True
    slug = "permission_denied"
    meaning = "the credentials do not allow this"


class UnavailableError(CloudgraftError):
    """The cloud was not reached, or refused the call before it acted. Nothing was done; the engine tries again.

    For a create or delete, raise it only when that is certain: the connection was refused, or the cloud's
    documentation promises that this answer comes before it acts. A 503 may come from a proxy whose connection broke
    after the cloud got the request: raise DeadlineError for it. A list changes nothing, so that any failure of the
    cloud during a list may be an UnavailableError.
    """

    status = StatusCode.UNAVAILABLE
    http_status = 503
    retry = Retry.YES
    nothing_done = True
    slug = "unavailable"
    meaning = "not reached, or refused before it acted: nothing was done"


class DeadlineError(CloudgraftError):
    """The call was sent and its outcome is not known: no response in time, a lost connection, or a 5xx.

    The engine looks for the machine in the list before it creates or deletes again.
    """

    status = StatusCode.DEADLINE_EXCEEDED
    http_status = 504
    retry = Retry.SETTLE_FIRST
    slug = "deadline"
    meaning = "no answer, or a server error after the call was sent: the outcome is unknown"


class UnsupportedError(CloudgraftError):
    """This provider or driver does not have the capability asked for. Nothing was done."""

    status = StatusCode.UNIMPLEMENTED
    http_status = 501
    retry = Retry.NO
    nothing_done = True
    slug = "unsupported"
    meaning = "this provider or driver has no such capability"


class InternalError(CloudgraftError):
    """A bug: something happened that must not happen, or an invalid response. The outcome is not known."""


_TABLE: tuple[type[CloudgraftError], ...] = (
    InvalidArgumentError,
    NotFoundError,
    AlreadyExistsError,
    PreconditionError,
    ConflictError,
    QuotaExceededError,
    OutOfStockError,
    RateLimitedError,
    AuthenticationError,
    PermissionDeniedError,
    UnavailableError,
    DeadlineError,
    UnsupportedError,
    InternalError,
)
_BY_SLUG = {error.slug: error for error in _TABLE}
# Codes that a foreign server may send and that are not the code of any class above.
_BY_STATUS: dict[StatusCode, type[CloudgraftError]] = {
    StatusCode.CANCELLED: DeadlineError,  # the call was given up: what it did is as unknown as after a deadline
    StatusCode.UNKNOWN: InternalError,
    StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    StatusCode.DATA_LOSS: InternalError,
    StatusCode.RESOURCE_EXHAUSTED: QuotaExceededError,
    **{error.status: error for error in _TABLE if error.status is not StatusCode.RESOURCE_EXHAUSTED},
}


def error_table() -> tuple[type[CloudgraftError], ...]:
    """All error classes, in the order in which the documentation lists them."""
    return _TABLE


def error_from_slug(slug: str) -> type[CloudgraftError] | None:
    """The class with that name on the wire, or None for a name of a newer or foreign program."""
    return _BY_SLUG.get(slug)


def error_from_status(status: int) -> type[CloudgraftError]:
    """The class that fits a gRPC status code best; a code nobody defined counts as a bug of the other side."""
    try:
        return _BY_STATUS[StatusCode(status)]
    except (KeyError, ValueError):
        return InternalError
