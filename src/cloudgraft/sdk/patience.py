"""Tracks whether the caller of a change still waits for it.

A change that has begun is completed, whatever its caller does. A change that is still queued when the caller gives up
must not begin: the caller has already seen it fail (R45).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar


def _never() -> bool:
    return False


_has_left: ContextVar[Callable[[], bool]] = ContextVar("cloudgraft_caller_has_left", default=_never)


def follow_caller(has_left: Callable[[], bool]) -> None:
    """Sets how to find out whether the caller has given up, for this task and the tasks that it starts."""
    _has_left.set(has_left)


def caller_has_left() -> bool:
    """Returns True when the caller has stopped waiting; False also when there never was a caller."""
    return _has_left.get()()
