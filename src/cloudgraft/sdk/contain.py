"""Bounds a call of an author's code: what its failure ends, how long it takes, whether its caller still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TypeVar

from cloudgraft.sdk.errors import CloudgraftError

T = TypeVar("T")


class EscapedError(RuntimeError):
    """An author's code raised something that would have ended more than its call."""


async def contained(call: Awaitable[T]) -> T:
    """Returns the call's result or raises an Exception, whatever the call raises.

    ``sys.exit()`` in a provider would end the server. A library that cancels its own task would look like a caller that
    gave up, and the real caller would never get an answer. Only a cancellation of our own task passes through.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise EscapedError("a task within the call was cancelled") from error
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise EscapedError(f"the call raised {type(error).__name__}") from error


async def within(
    seconds: float,
    call: Callable[[], Awaitable[T]],
    *,
    late: Callable[[], CloudgraftError],
    failed: Callable[[Exception], CloudgraftError],
) -> T:
    """The call's result within so many seconds, or a CloudgraftError, whatever it does.

    The call's own CloudgraftError goes through. ``late`` makes the error for a call that takes longer. ``failed`` makes
    the error for any other exception, a TimeoutError of the call's own among them, and may log it.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await contained(call())
    except CloudgraftError:
        raise
    except Exception as error:
        raise (late() if limit.expired() else failed(error)) from error


# -- Tracks whether the caller of a change still waits for it ----------------------------------------------------------
# A change that has begun is completed, whatever its caller does. A change that is still queued when the caller gives up
# must not begin: the caller has already seen it fail (R45).


def _never() -> bool:
    return False


_has_left: ContextVar[Callable[[], bool]] = ContextVar("cloudgraft_caller_has_left", default=_never)


def follow_caller(has_left: Callable[[], bool]) -> None:
    """Sets how to find out whether the caller has given up, for this task and the tasks that it starts."""
    _has_left.set(has_left)


def caller_has_left() -> bool:
    """Returns True when the caller has stopped waiting; False also when there never was a caller."""
    return _has_left.get()()
