"""Keeping an author's code from taking more down than its own call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["EscapedError", "contained", "within"]

T = TypeVar("T")


class EscapedError(RuntimeError):
    """An author's code raised something that would have ended more than its call."""


async def contained(call: Awaitable[T]) -> T:
    """The call's result, or an Exception, whatever it does.

    ``sys.exit()`` in a provider would end the server, and a library that cancels its own task would look like a caller
    who has given up, so that nobody would ever be answered. Only a cancellation that was meant for us goes through.
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
