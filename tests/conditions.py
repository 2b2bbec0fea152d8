"""Waiting for a condition, never for a time; and errors that nobody looks at."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any


async def until(condition: Callable[[], bool | Awaitable[bool]], *, what: str = "", seconds: float = 45.0) -> None:
    """Returns once the condition holds; fails when it does not within a time that suffices on a very busy machine."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if await result if isawaitable(result) else result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds} s: {what or condition}")
        await asyncio.sleep(0.005)


@contextmanager
def no_error_is_lost() -> Iterator[None]:
    """Fails when a task or a future ends with an error that nobody has looked at, or a callback raises."""
    lost: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: lost.append(context))
    try:
        yield
        gc.collect()  # asyncio complains when it is thrown away
    finally:
        loop.set_exception_handler(None)
    assert not lost
