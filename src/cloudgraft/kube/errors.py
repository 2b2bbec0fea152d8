"""Maps the API's error responses to our errors."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cloudgraft.kube.rights import Right
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
)

_LONGEST = 500  # characters of a message; a proxy may respond with a whole page


class ExpiredError(ConflictError):
    """The API no longer has the requested version: list again, and watch from there."""


_BY_CODE: dict[int, type[CloudgraftError]] = {
    400: InvalidArgumentError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidArgumentError,
    429: RateLimitedError,
    502: UnavailableError,
    503: UnavailableError,
    504: DeadlineError,  # the API server timed out waiting for its store, which may still have done it
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """The API's own description of an error."""

    reason: str = ""
    message: str = ""
    retry_after: float | None = None


def refusal(what: str, code: int, body: bytes, *, retry_after: str = "", right: Right | None = None) -> CloudgraftError:
    """The error for a response with that code; ``what`` says what was tried, as in "cannot list nodes"."""
    status = _status(body)
    # otherwise something other than RBAC denied it
    if code == 403 and right is not None and " cannot " in status.message:
        what = f"{what}: the account may not {right}: grant it (docs/reference/rbac.md has the rule)"
    error = _BY_CODE.get(code, InternalError)
    if code == 409 and status.reason == "AlreadyExists":
        error = AlreadyExistsError
    seconds = float(retry_after) if retry_after.isdigit() else status.retry_after
    return error(f"{what}: the Kubernetes API answered {code}: {status.message}"[:_LONGEST], retry_after=seconds)


def _status(body: bytes) -> _Status:
    """Reads a ``Status`` object, or shows the start of any other response."""
    try:
        read = json.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        return _Status(message=body[:_LONGEST].decode("utf-8", "replace").strip() or "(no message)")
    details = read.get("details")
    wait = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return _Status(
        reason=str(read.get("reason", "")),
        message=str(read.get("message") or read.get("reason") or "(no message)"),
        retry_after=float(wait) if isinstance(wait, int) else None,
    )
