"""Injectable clocks: wall time without jumps, and monotonic time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from cloudgraft.store.records import Progress

# -- monotonic time ----------------------------------------------------------------------------------------------------
# Measures how long something has held, whatever happens to the wall clock.


T = TypeVar("T")

# Linux stops CLOCK_MONOTONIC while a machine is suspended; a lease ends all the same.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """Measures time and waits for it."""

    def now(self) -> float:
        """Seconds since some moment; never goes back, and keeps counting while the process is stopped."""

    async def sleep(self, seconds: float) -> None:
        """Waits."""


class SystemTimer:
    """The host's monotonic clock. Safe to read from any thread."""

    def now(self) -> float:
        """Seconds since the host booted, including time in which it was suspended."""
        return time.clock_gettime(_CLOCK)

    async def sleep(self, seconds: float) -> None:
        """Waits. A host that was suspended may wake up late, so read the time afterwards."""
        await asyncio.sleep(seconds)


class Patience:
    """Waits for a time or an answer; :meth:`end` interrupts every wait."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._over = asyncio.Event()

    def end(self) -> None:
        """Ends every wait, including later ones, until :meth:`begin`."""
        self._over.set()

    def begin(self) -> None:
        """Allows waiting again."""
        self._over.clear()

    async def pause(self, seconds: float) -> None:
        """Waits at most that long."""
        if seconds > 0 and not self._over.is_set():
            await self._first_of(asyncio.create_task(self._timer.sleep(seconds)))

    async def answer(self, question: Coroutine[Any, Any, T], seconds: float) -> T:
        """Returns the answer; raises TimeoutError when it is late, or when :meth:`end` interrupts the wait.

        Does not use asyncio.timeout(): that waits until the cancelled task ends, and a database driver may be slow.
        """
        asking = asyncio.create_task(question)
        await self._first_of(asking, asyncio.create_task(self._timer.sleep(seconds)))
        if asking.done() and not asking.cancelled():
            return asking.result()
        raise TimeoutError(f"no answer within {seconds:.3g} s")

    async def _first_of(self, *tasks: asyncio.Task[Any]) -> None:
        """Waits until one of the tasks is done; cancels the others and does not wait for them."""
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({*tasks, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, over):
                task.add_done_callback(_look_at)
                task.cancel()


def _look_at(task: asyncio.Task[Any]) -> None:
    """Retrieves the error of an abandoned task, so that asyncio does not complain."""
    if not task.cancelled():
        task.exception()


_NO_TIME: Final = 1_600_000_000.0  # September 2020: a clock that shows less was never set
_HASTE: Final = 0.02  # share of the elapsed time by which it catches up, at most: no deadline gets shorter
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Returns the wall time."""

    def now(self) -> float:
        """Seconds since the epoch, for records and events."""


class SystemClock:
    """The host's wall clock, without its jumps.

    When somebody sets the clock, no time has passed: no machine is late, and nothing has to wait for longer. So this
    clock catches up with the new time gradually. Only a clock that was never set is corrected at once.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        ran: Callable[[], float] | None = None,
        boot_id: Callable[[], str] | None = None,
    ) -> None:
        """``wall`` is the clock that people set, ``ran`` is monotonic, and ``boot_id`` identifies its boot."""
        self._wall = wall
        self._ran = ran or SystemTimer().now
        self._boot_id = boot_id or _read_boot_id
        self._shown, self._at = wall(), self._ran()

    def now(self) -> float:
        """Seconds since the epoch; never goes back."""
        at = self._ran()
        passed, self._at = at - self._at, at
        ahead = self._wall() - (self._shown + passed)
        if not self._shown < _NO_TIME <= self._shown + ahead:
            ahead = max(-passed * _HASTE, min(passed * _HASTE, ahead))
        self._shown += passed + ahead
        return self._shown

    @property
    def offset(self) -> float:
        """Seconds by which the wall clock is ahead of this one: the rest of a jump."""
        return self._wall() - self._shown

    def progress(self) -> Progress:
        """The clock's progress, for the journal."""
        return Progress(at=self.now(), boot_id=self._boot_id(), boot_time=self._ran())

    def go_on(self, latest: float, progress: Progress | None) -> None:
        """Continues from the journal's progress, never behind its ``latest`` time.

        On the same boot it adds the time that has really passed since.
        """
        shown = max(self.now(), latest)
        if progress is not None and progress.boot_id and progress.boot_id == self._boot_id():
            shown = max(progress.at + max(0.0, self._ran() - progress.boot_time), latest)
        if shown >= _NO_TIME or self._shown < shown:
            self._shown = shown


def wall_time(clock: Clock) -> float:
    """The wall clock's time, including jumps: clouds charge by it."""
    now = clock.now()
    return now + clock.offset if isinstance(clock, SystemClock) else now


def _read_boot_id() -> str:
    """Reads the boot id; empty where the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
