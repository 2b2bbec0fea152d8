"""What an answer that is no success means: one table, by HTTP status and by the error code in the body.

A code, when the body has one that we know, says more than the status, and counts. With one exception: a 5xx other than
501 and 503 may come from anything between us and the receiver, or from a receiver that broke in the middle; after a
change its outcome is open, whatever the body says. So it is after a 503 without a code: proxies answer with it when the
connection behind them broke, which may be after the receiver has got the request.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from cloudgraft.drivers.common.json_fields import shown
from cloudgraft.drivers.common.machine_json import error_from_json, parse_json
from cloudgraft.drivers.common.user_data import CUT
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    PreconditionError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
    UnavailableError,
    UnsupportedError,
    error_from_slug,
)

__all__ = ["GONE", "NOT_OFFERED", "OTHER", "SUCCESSES", "TABLE", "Row", "refusal"]

SUCCESSES: Final = frozenset({200, 201, 202, 204})
GONE: Final = frozenset({404, 410})  # as the answer to a deletion: it is gone already
NOT_OFFERED: Final = frozenset({404, 405, 501})  # as the answer of shapes and prices: there is none of them
_LONGEST_MESSAGE: Final = 500
_LOOKED_AT: Final = 4096  # bytes of a body: more than is shown, so that no secret is cut before it is hidden
_LONGEST_WAIT: Final = 3600.0  # seconds; what a receiver may ask us to wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one status, or a range of them, means when the body has no code."""

    statuses: range
    change: type[CloudgraftError]  # after a create or delete
    read: type[CloudgraftError]
    words: str

    @property
    def title(self) -> str:
        """As documentation writes it."""
        first, last = self.statuses[0], self.statuses[-1]
        return str(first) if first == last else f"{first}-{last}"


def _row(
    status: int, error: type[CloudgraftError], words: str, *, read: type[CloudgraftError] | None = None, last: int = 0
) -> Row:
    return Row(statuses=range(status, (last or status) + 1), change=error, read=read or error, words=words)


_AWAY: Final = "the receiver, or something in between, broke in the middle"
_MOVED: Final = "redirects are not followed: put the right address into `url`"
TABLE: Final = (
    _row(300, DeadlineError, _MOVED, read=PreconditionError),
    _row(301, PreconditionError, _MOVED, last=302),
    _row(303, DeadlineError, _MOVED, read=PreconditionError, last=306),
    _row(307, PreconditionError, _MOVED, last=308),
    _row(309, DeadlineError, _MOVED, read=PreconditionError, last=399),
    _row(400, InvalidArgumentError, "the request makes no sense to it"),
    _row(401, AuthenticationError, "it does not accept our certificate, signature or token"),
    _row(402, QuotaExceededError, "the account may not have more"),
    _row(403, PermissionDeniedError, "it knows us, and says no"),
    _row(404, PreconditionError, "there is no such endpoint: is `url` right?"),
    _row(405, PreconditionError, "there is no such endpoint: is `url` right?"),
    _row(408, DeadlineError, "it gave up waiting", read=UnavailableError),
    _row(409, AlreadyExistsError, "another machine has that name", read=ConflictError),
    _row(410, PreconditionError, "there is no such endpoint any more: is `url` right?"),
    _row(413, InvalidArgumentError, "the request is too large for it: is the user data?"),
    _row(422, InvalidArgumentError, "the request makes no sense to it"),
    _row(423, ConflictError, "it is busy with that machine"),
    _row(429, RateLimitedError, "too many calls, nothing was done"),
    _row(501, UnsupportedError, "it cannot do that"),
    _row(503, DeadlineError, "it, or something in between, is away or overloaded", read=UnavailableError),
    _row(500, DeadlineError, _AWAY, read=UnavailableError, last=599),
)
"""In this order: the first row that has the status counts."""
OTHER: Final = Row(
    statuses=range(0), change=InternalError, read=InternalError, words="this is no answer that a receiver gives"
)
_REFUSED: Final = Row(
    statuses=range(400, 500), change=PreconditionError, read=PreconditionError, words="it refuses the request"
)
_NOTHING_DONE: Final = frozenset({501, 503})


def refusal(
    what: str, status: int, headers: Mapping[str, str], body: bytes, *, is_change: bool, is_delete: bool = False
) -> CloudgraftError:
    """The error for an answer; ``what`` says which call it answers. It is never shown more of the body than a line."""
    row = _row_of(status)
    kind = row.change if is_change else row.read
    if is_delete and kind is AlreadyExistsError:
        kind = ConflictError
    told = _told(body)
    if told is not None and (not is_change or status < 500 or status in _NOTHING_DONE):
        kind = type(told)
    words = _shortened(told.message) if told is not None else _said(body)
    retry_after = _wait(headers.get("retry-after", ""))
    if retry_after is None and told is not None:
        retry_after = told.retry_after
    message = f"{what}: the receiver answered {status}{_where_to(status, headers)}, {row.words}"
    if told is not None and kind is type(told):
        message = f"{what}: the receiver answered {status} ({told.slug})"
    message += f": {words}" if words else ""
    if kind.retry is Retry.SETTLE_FIRST and is_change:
        message += "; whether it was done is not known"
    return kind(message, retry_after=retry_after)


def _row_of(status: int) -> Row:
    found = next((row for row in TABLE if status in row.statuses), None)
    if found is not None:
        return found
    return _REFUSED if status in _REFUSED.statuses else OTHER


def _told(body: bytes) -> CloudgraftError | None:
    """The error that the body tells by a code that we know."""
    try:
        data = parse_json(body, "the answer")
    except InternalError:
        return None
    error = data.get("error") if isinstance(data, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, str) or error_from_slug(code) is None:
        return None
    told = error_from_json(data)
    return told if told is not None and told.slug == code else None


def _said(body: bytes) -> str:
    """The beginning of a body that tells no code that we know."""
    text = body[:_LOOKED_AT].decode("utf-8", "replace").strip()
    if not text:
        return ""
    return "with an HTML page" if text.startswith("<") else f"with {shown(text)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}{CUT}"


def _where_to(status: int, headers: Mapping[str, str]) -> str:
    place = headers.get("location", "")
    is_redirect = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
    return f" to {shown(place.partition('?')[0])}" if is_redirect and place else ""


def _wait(value: str) -> float | None:
    """Retry-After, in seconds: a number of them, or a date."""
    text = value.strip()
    try:
        seconds = float(text) if text[:1].isdigit() else _until(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT) if math.isfinite(seconds) else None


def _until(date: str) -> float:
    moment = parsedate_to_datetime(date)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - datetime.now(UTC)).total_seconds()
