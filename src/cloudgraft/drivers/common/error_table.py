"""Maps a cloud's own errors to ours, in one table per cloud that the driver and its reference page share.

The HTTP status decides for an error without a row. Where a change may have been carried out despite the error, the
outcome is unknown, and a list settles it (law 3): a server that failed midway does not say that it did nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.http_errors import http_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One error of a cloud. Every field that is set must match: code, part of the text, HTTP status."""

    error: type[CloudgraftError]
    code: str = ""
    text: str = ""  # a part of its text, in upper or lower case
    status: int | None = None
    fix: str = ""  # what a person can do about it

    def fits(self, status: int | None, code: str, text: str) -> bool:
        """Returns whether the error matches this row."""
        return (
            (not self.code or self.code == code)
            and (self.status is None or self.status == status)
            and (not self.text or self.text.lower() in text.lower())
        )


class ErrorTable:
    """The errors of one cloud; the first matching row counts."""

    def __init__(self, *rows: Known) -> None:
        self.rows = rows

    def find(self, *, status: int | None = None, code: str = "", text: str = "") -> Known | None:
        """Returns the row for an error, if there is one."""
        return next((row for row in self.rows if row.fits(status, code, text)), None)

    def error(
        self,
        message: str,
        *,
        is_change: bool,
        said: str | None = None,
        status: int | None = None,
        code: str = "",
        retry_after: float | None = None,
        is_page: bool = False,
    ) -> CloudgraftError:
        """Returns the exception to raise for an error of the cloud.

        ``said`` is the cloud's own text, which rows are matched against; None: the whole message is the cloud's. Our
        own additions must not match: they hold a machine's name, which holds its group's id, and that may be any word.
        ``is_change`` says whether the call would have changed something: then an unknown error means an unknown
        outcome.

        ``is_page`` says that the response is not in the cloud's own form. It may be a page of a proxy, and a word in it
        that matches a row proves nothing: the cloud may have acted before the proxy failed.
        """
        text = message if said is None else said
        if is_page and is_change and (status or 500) >= 500:
            text = ""
        row = self.find(status=status, code=code, text=text)
        if row is not None:
            return row.error(f"{message}; {row.fix}" if row.fix else message, retry_after=retry_after)
        return error_of_status(status, message, is_change=is_change, retry_after=retry_after)


def error_of_status(
    status: int | None, message: str, *, is_change: bool, retry_after: float | None = None
) -> CloudgraftError:
    """Returns the exception for an HTTP status without a row; a status of None means that the response had none."""
    # Not "create": a driver's own rows say which 409 means that the name is taken.
    return http_error("delete" if is_change else "list", status, message, retry_after=retry_after)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds of the header Retry-After, a number or a date; None when it cannot be used."""
    value = next((value for key, value in headers.items() if key.lower() == "retry-after"), "").strip()
    try:
        seconds = float(value) if value[:1].isdigit() and " " not in value else _until(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(date: str) -> float:
    moment = parsedate_to_datetime(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time.time()
