"""Converts our errors to RFC 9457 problems and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
    error_from_slug,
)

MEDIA_TYPE: Final = "application/problem+json"


class EditedMeanwhileError(ConflictError):
    """The object has changed since the caller read it (If-Match)."""

    http_status = 412


class Fault(BaseModel):
    """One error in a request."""

    where: str = Field(description="The place in the request, such as `body.minSize`.")
    message: str


class Problem(BaseModel):
    """What went wrong (RFC 9457). `code` is stable; `detail` is for people."""

    model_config = ConfigDict(json_schema_extra={"title": "Problem"})

    type: str = Field("about:blank", description="`urn:cloudgraft:error:` and the code.")
    title: str = Field(description="What the code means.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field("", description="What is wrong and what to do.")
    code: str = Field(description="The name of the error, as in the reference of errors.")
    request_id: str = Field("", alias="requestId", description="Finds the request in the server's log.")
    faults: list[Fault] = Field(default_factory=list, description="All that is wrong with the request.")


_STATUSES: Final = {
    400: "The request is invalid.",
    401: "Nobody is known by this certificate or token.",
    403: "The caller may not do this.",
    404: "There is no such thing.",
    405: "The path has no such method.",
    409: "Not possible in the present state.",
    412: "It was changed meanwhile: read it again.",
    413: "The request is too large.",
    422: "The request breaks the schema.",
    429: "Too many requests.",
    500: "A bug; the log has the rest under the request's id.",
    501: "Not supported here.",
    503: "Away or overloaded; nothing was done.",
    504: "No answer in time; the outcome is unknown.",
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, text in _STATUSES.items()
}
_BY_STATUS: Final[Mapping[int, type[CloudgraftError]]] = {
    400: InvalidArgumentError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    405: UnsupportedError,
    408: DeadlineError,
    409: PreconditionError,
    412: ConflictError,
    413: InvalidArgumentError,
    422: InvalidArgumentError,
    429: RateLimitedError,
    501: UnsupportedError,
    502: DeadlineError,  # a proxy lost the response
    503: UnavailableError,
    504: DeadlineError,
}


def problem_of(error: CloudgraftError, *, request_id: str = "") -> Problem:
    """The problem for an error."""
    return Problem(
        type=f"urn:cloudgraft:error:{error.slug}",
        title=error.meaning,
        status=error.http_status,
        detail=error.message,
        code=error.slug,
        requestId=request_id,
    )


def error_of(
    status: int, body: object, *, is_change: bool = False, retry_after: float | None = None
) -> CloudgraftError:
    """The error for a response: by its code, else by its status.

    A 503 without a code is a proxy's: after a request that changes something, the outcome is then unknown.
    """
    said: Mapping[str, object] = body if isinstance(body, dict) else {}
    by_status = DeadlineError if is_change and status == 503 else _BY_STATUS.get(status, InternalError)
    kind = error_from_slug(str(said.get("code", ""))) or by_status
    if status == 412:
        kind = ConflictError
    detail = str(said.get("detail") or said.get("title") or f"the server answered with status {status}")
    faults = said.get("faults")
    if isinstance(faults, list) and faults:
        found = "; ".join(f"{f.get('where', '')}: {f.get('message', '')}" for f in faults if isinstance(f, dict))
        detail = f"{detail}: {found}"
    return kind(detail, retry_after=retry_after)
