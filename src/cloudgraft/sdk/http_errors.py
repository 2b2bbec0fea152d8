"""Chooses the error for an HTTP status, separately for create, delete and list.

One table for the authors of drivers, for the drivers of this package, and for ``docs/reference/errors.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)

HttpCall = Literal["create", "delete", "list"]

_BY_STATUS: Final[Mapping[int, type[CloudgraftError]]] = {
    400: InvalidArgumentError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    405: UnsupportedError,
    409: ConflictError,
    413: InvalidArgumentError,
    422: InvalidArgumentError,
    429: RateLimitedError,
    501: UnsupportedError,
}
_TIMED_OUT: Final = 408
_CONFLICT: Final = 409


def http_error(
    call: HttpCall, status: int | None, message: str, *, retry_after: float | None = None
) -> CloudgraftError:
    """Returns the error to raise for an HTTP response to ``call`` that is not a success.

    A 5xx or a 408 to a create or delete is a DeadlineError: the server may have failed after it acted, or a proxy lost
    the response. To a list it is an UnavailableError. A status of None means that no response came although the request
    was sent. When the request was never sent, raise UnavailableError yourself. Look at the cloud's own error codes
    first: a quota or a stock-out has its own class, which no status shows.
    """
    return _kind(call, status)(message, retry_after=retry_after)


def _kind(call: HttpCall, status: int | None) -> type[CloudgraftError]:
    if status is None or status == _TIMED_OUT or (status >= 500 and status not in _BY_STATUS):
        return UnavailableError if call == "list" else DeadlineError
    if status == _CONFLICT and call == "create":
        return AlreadyExistsError  # perhaps our own machine: the engine looks for it in the list
    if status < 400:
        return InternalError  # an invalid response
    return _BY_STATUS.get(status, InvalidArgumentError)
