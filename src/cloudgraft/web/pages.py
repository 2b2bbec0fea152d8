"""Long lists, a page at a time. A cursor says after which key to go on, so that what comes and goes between two pages
makes none of the others appear twice or not at all.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["cursor_after", "key_of", "page"]

T = TypeVar("T")


def cursor_after(key: str) -> str:
    """The cursor that goes on after a key."""
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def key_of(cursor: str) -> str:
    """The key after which a cursor goes on."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:  # of the second kind: what is not ASCII
        raise InvalidArgumentError("this cursor is not one of ours: begin again without one") from error


def page(items: Iterable[T], *, limit: int, cursor: str, key: Callable[[T], str]) -> tuple[Sequence[T], str]:
    """The items of one page, in the order of their keys, and the cursor of the next; empty after the last."""
    after = key_of(cursor) if cursor else None
    ordered = sorted((item for item in items if after is None or key(item) > after), key=key)
    shown = ordered[:limit]
    return shown, cursor_after(key(shown[-1])) if len(ordered) > limit else ""
