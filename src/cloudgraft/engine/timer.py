"""Time that only passes: for how long something has held, whatever happens to the clock on the wall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

__all__ = ["Patience", "SystemTimer", "Timer"]

T = TypeVar("T")

# Linux stops CLOCK_MONOTONIC while a machine is suspended; a lease ends all the same.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """Measures time and waits for it."""

    def now(self) -> float:
        """Seconds since some moment; never goes back, and goes on while the process is stopped."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemTimer:
    """The machine's own. Safe to ask from any thread."""

    def now(self) -> float:
        """Seconds since the machine was started, those in which it was suspended included."""
        return time.clock_gettime(_CLOCK)

    async def sleep(self, seconds: float) -> None:
        """Waits; a machine that was suspended may wake up late, so look at the time afterwards."""
        await asyncio.sleep(seconds)


class Patience:
    """Waits for a time or an answer, but no longer once something else has happened that must be looked at."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._over = asyncio.Event()

    def end(self) -> None:
        """Ends every wait, those to come included, until :meth:`begin`."""
        self._over.set()

    def begin(self) -> None:
        """Makes waiting possible again."""
        self._over.clear()

    async def pause(self, seconds: float) -> None:
        """Waits that long at most."""
        if seconds > 0 and not self._over.is_set():
            await self._first_of(asyncio.create_task(self._timer.sleep(seconds)))

    async def answer(self, question: Coroutine[Any, Any, T], seconds: float) -> T:
        """The answer; TimeoutError when it does not come in time, or is no longer waited for.

        Not asyncio.timeout(): that waits until what it cancels has ended, and a database driver may take its time.
        """
        asking = asyncio.create_task(question)
        await self._first_of(asking, asyncio.create_task(self._timer.sleep(seconds)))
        if asking.done() and not asking.cancelled():
            return asking.result()
        raise TimeoutError(f"no answer within {seconds:.3g} s")

    async def _first_of(self, *tasks: asyncio.Task[Any]) -> None:
        """Until one of them is done; the others are cancelled and left to themselves."""
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({*tasks, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, over):
                task.add_done_callback(_look_at)
                task.cancel()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Takes notice of an error that nobody waits for, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()
