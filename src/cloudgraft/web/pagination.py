"""Splits long lists into pages, and converts revisions to entity tags (RFC 9110, 13.1)."""

from __future__ import annotations

import base64
import binascii
import heapq
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cloudgraft.sdk.errors import InvalidArgumentError

T = TypeVar("T")


def cursor_after(key: str) -> str:
    """The cursor that continues after a key."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_of(cursor: str) -> str:
    """The key that a cursor continues after."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:  # the second for non-ASCII text
        raise InvalidArgumentError("this cursor is not one of ours: begin again without one") from error


def page(items: Iterable[T], *, limit: int, cursor: str, key: Callable[[T], str]) -> tuple[Sequence[T], str]:
    """The items of one page, in the order of their keys, and the cursor of the next; empty after the last."""
    after = key_of(cursor) if cursor else None
    rest = (item for item in items if after is None or key(item) > after)
    first = heapq.nsmallest(limit + 1, rest, key=key)  # without sorting all of them
    return first[:limit], cursor_after(key(first[limit - 1])) if len(first) > limit else ""


# -- entity tags -------------------------------------------------------------------------------------------------------
# Revisions as entity tags, so that two editors do not overwrite each other (RFC 9110, 13.1).


def etag_of(revision: int | str) -> str:
    """The tag of a revision."""
    return f'"{revision}"'


def revision_of(if_match: str | None) -> int | None:
    """The revision in an ``If-Match`` header; None without one, or for any (``*``)."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = re.fullmatch(r'\s*"(\d{1,18})"\s*', if_match)
    if found is None:
        raise InvalidArgumentError(f'If-Match is {if_match[:40]!r}: give the ETag that was read, such as "7"')
    return int(found[1])
