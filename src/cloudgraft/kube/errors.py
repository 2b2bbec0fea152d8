"""Maps the API's error responses to our errors."""

from __future__ import annotations

import json
from typing import Any

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
_LOST = frozenset({502, 503})  # may come from a proxy or load balancer that lost the API server's response


def refusal(
    what: str, code: int, body: bytes, *, is_change: bool = False, retry_after: str = "", right: Right | None = None
) -> CloudgraftError:
    """The error for a response with that code; ``what`` says what was tried, as in "cannot list nodes"."""
    status = _status(body)
    message, details = str(status["message"]), status.get("details")
    # otherwise something other than RBAC denied it
    if code == 403 and right is not None and " cannot " in message:
        what = f"{what}: the account may not {right}: grant it (docs/reference/rbac.md has the rule)"
    error = DeadlineError if is_change and code in _LOST else _BY_CODE.get(code, InternalError)
    if code == 409 and status.get("reason") == "AlreadyExists":
        error = AlreadyExistsError
    wait = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    if retry_after.isdigit():
        wait = int(retry_after)
    seconds = float(wait) if isinstance(wait, int) else None
    return error(f"{what}: the Kubernetes API answered {code}: {message}"[:_LONGEST], retry_after=seconds)


def _status(body: bytes) -> dict[str, Any]:
    """The ``Status`` object of a response, with a message in any case: the start of any other response."""
    try:
        read = json.loads(body)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        return {"message": body[:_LONGEST].decode("utf-8", "replace").strip() or "(no message)"}
    return {**read, "message": read.get("message") or read.get("reason") or "(no message)"}
