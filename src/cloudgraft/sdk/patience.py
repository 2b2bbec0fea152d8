"""Whether the caller of a change still waits for it.

A change that has begun is carried through, whatever its caller does. One that still waits for its turn when the caller
gives up need not be made at all, and had better not: the caller was told that it failed (R45).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["caller_has_left", "follow_caller"]


def _never() -> bool:
    return False


_has_left: ContextVar[Callable[[], bool]] = ContextVar("cloudgraft_caller_has_left", default=_never)


def follow_caller(has_left: Callable[[], bool]) -> None:
    """From here on, in this task and in those that it starts: how to know that the caller has given up."""
    _has_left.set(has_left)


def caller_has_left() -> bool:
    """True when nobody waits any more for what is being done; False also when nobody ever did."""
    return _has_left.get()()
