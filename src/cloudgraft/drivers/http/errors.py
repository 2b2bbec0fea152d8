"""Maps a failed call to our errors: one without a response, and one with an error status."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from cloudgraft.drivers.common.error_table import retry_after
from cloudgraft.drivers.common.json_fields import shown
from cloudgraft.drivers.common.machine_json import error_from_json, parse_json
from cloudgraft.drivers.common.secrets import CUT
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

# -- no answer ---------------------------------------------------------------------------------------------------------
# Whether the call was sent, and why it was not.

# OpenSSL's error numbers for the other side's certificate.
_NOT_YET, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64
_NOT_TRUSTED: Final = frozenset({18, 19, 20, 21})
# The other side's alerts about our certificate, by OpenSSL's names.
_ABOUT_OURS: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR")


def failure(what: str, error: Exception, *, is_change: bool, was_sent: bool) -> CloudgraftError:
    """Returns the exception to raise; ``what`` names the call.

    Once a part of the request was sent, the outcome is unknown.
    """
    if tls_error := _tls_error(what, error, was_sent=was_sent):
        return tls_error
    import httpx2  # noqa: PLC0415 - an extra, which the driver's class must not need

    text = str(error) or type(error).__name__
    is_late = isinstance(error, TimeoutError | httpx2.TimeoutException)
    if not was_sent:
        why = "no connection in time (connectTimeout)" if is_late else text
        return UnavailableError(f"{what}: the receiver cannot be reached: {why}")
    if is_late:
        return DeadlineError(f"{what}: no answer from the receiver in time{_open(is_change)}")
    message = f"{what}: the connection broke before there was a whole answer ({text})"
    return DeadlineError(f"{message}{_open(is_change)}") if is_change else UnavailableError(message)


def _open(is_change: bool) -> str:  # noqa: FBT001 - one word of a sentence
    return "; whether it was done is not known" if is_change else ""


def _tls_error(what: str, error: Exception, *, was_sent: bool) -> CloudgraftError | None:
    """Returns the exception for an error of TLS that proves that nothing was done."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UnavailableError(f"{what}: {_about_theirs(cause)}")
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return _alert(what, cause.reason, was_sent=was_sent)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    here: BaseException | None = error
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        yield here
        here = here.__cause__ or here.__context__


def _about_theirs(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "the receiver's certificate has expired: renew it there"
    if error.verify_code == _NOT_YET:
        return "the receiver's certificate does not hold yet: are both clocks right?"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return (
            f"the receiver's certificate is for another host ({error.verify_message}): put the name that it is for "
            "into `url`, or get a certificate for this one"
        )
    if error.verify_code in _NOT_TRUSTED:
        return (
            f"the receiver's certificate was signed by nobody that is trusted here ({error.verify_message}): give its "
            "authority as caFile"
        )
    return f"the receiver's certificate cannot be trusted: {error.verify_message}"


def _alert(what: str, reason: str, *, was_sent: bool) -> CloudgraftError | None:
    """Reads the alert with which the other side ended TLS. In TLS 1.3 it may come after our request was sent."""
    if any(word in reason for word in _ABOUT_OURS):
        words = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
        fix = "give one that it knows as certFile and keyFile"
        return AuthenticationError(f"{what}: the receiver does not accept our certificate ({words}): {fix}")
    if was_sent:
        return None
    hint = "perhaps it asks for a certificate of ours: see certFile and keyFile"
    return UnavailableError(f"{what}: the receiver broke off the TLS handshake ({reason}); {hint}")


# -- refusals ----------------------------------------------------------------------------------------------------------
# One table maps error responses, by HTTP status and by the error code in the body. A known code in the body counts more
# than the status. The exception is a 5xx other than 501 and 503: it may come from a proxy, or from a receiver that
# failed midway. After a change its outcome is then unknown, whatever the body says. The same holds for a 503 without a
# code: proxies send it when the connection behind them broke, which may be after the receiver got the request.

SUCCESSES: Final = frozenset({200, 201, 202, 204})
GONE: Final = frozenset({404, 410})  # as the response to a deletion: already gone
NOT_OFFERED: Final = frozenset({404, 405, 501})  # as the response for shapes and prices: not offered
_LONGEST_MESSAGE: Final = 500
_LOOKED_AT: Final = 4096  # bytes of a body: more than is shown, so that no secret is cut before it is hidden
_LONGEST_WAIT: Final = 3600.0  # seconds; the longest accepted Retry-After


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The meaning of one status, or a range of them, when the body has no code."""

    statuses: range
    change: type[CloudgraftError]  # after a create or delete
    read: type[CloudgraftError]
    words: str


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
"""In order: the first row with the status counts."""
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
    """Returns the exception for a response; ``what`` names the call. It shows at most one line of the body."""
    row = _row_of(status)
    kind = row.change if is_change else row.read
    if is_delete and kind is AlreadyExistsError:
        kind = ConflictError
    stated = _stated(body)
    if stated is not None and (not is_change or status < 500 or status in _NOTHING_DONE):
        kind = type(stated)
    words = _shortened(stated.message) if stated is not None else _said(body)
    seconds = retry_after(headers)
    if seconds is not None:
        seconds = min(seconds, _LONGEST_WAIT)
    elif stated is not None:
        seconds = stated.retry_after
    message = f"{what}: the receiver answered {status}{_where_to(status, headers)}, {row.words}"
    if stated is not None and kind is type(stated):
        message = f"{what}: the receiver answered {status} ({stated.slug})"
    message += f": {words}" if words else ""
    if kind.retry is Retry.SETTLE_FIRST and is_change:
        message += "; whether it was done is not known"
    return kind(message, retry_after=seconds)


def _row_of(status: int) -> Row:
    found = next((row for row in TABLE if status in row.statuses), None)
    if found is not None:
        return found
    return _REFUSED if status in _REFUSED.statuses else OTHER


def _stated(body: bytes) -> CloudgraftError | None:
    """Returns the error of the body, if its code is known."""
    try:
        data = parse_json(body, "the answer")
    except InternalError:
        return None
    error = data.get("error") if isinstance(data, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, str) or error_from_slug(code) is None:
        return None
    stated = error_from_json(data)
    return stated if stated is not None and stated.slug == code else None


def _said(body: bytes) -> str:
    """Returns the beginning of a body without a known code."""
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
