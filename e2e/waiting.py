"""Waiting for conditions, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["UnmetError", "eventually", "until"]

T = TypeVar("T")
_LOOK: Final = 0.2  # seconds between two looks


class UnmetError(AssertionError):
    """Something did not happen in time."""


def until(
    condition: Callable[[], object], what: str, *, seconds: float, check: Callable[[], None] | None = None
) -> None:
    """Returns once the condition holds. ``check`` is asked at every look, and may raise."""
    eventually(condition, bool, what, seconds=seconds, check=check)


def eventually(
    read: Callable[[], T],
    accept: Callable[[T], object],
    what: str,
    *,
    seconds: float,
    check: Callable[[], None] | None = None,
) -> T:
    """What is read once it is acceptable; fails with what was read last when that does not happen in time."""
    deadline = time.monotonic() + seconds
    while True:
        if check is not None:
            check()
        seen = read()
        if accept(seen):
            return seen
        if time.monotonic() > deadline:
            raise UnmetError(f"not within {seconds:g} s: {what}; seen last: {_shown(seen)}")
        time.sleep(_LOOK)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 600 else text[:600] + " …"
