"""Waiting for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable


async def until(condition: Callable[[], bool | Awaitable[bool]], *, what: str = "", seconds: float = 20.0) -> None:
    """Returns once the condition holds; fails when it does not within a generous time."""
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if await result if isawaitable(result) else result:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {seconds} s: {what or condition}")
        await asyncio.sleep(0.005)
