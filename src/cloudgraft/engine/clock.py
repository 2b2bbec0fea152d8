"""The engine's clock: wall time for people, without the jumps that a wall clock makes.

Within a process it runs by a timer that nobody can set, and follows the wall clock slowly. Across restarts it goes on
from the journal: it never runs behind what the journal holds, and on a machine that was not restarted it knows for how
long the process was away, whatever somebody did to the wall clock meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from cloudgraft.engine.timer import SystemTimer
from cloudgraft.store.records import Progress

__all__ = ["Clock", "SystemClock", "wall_time"]


_NO_TIME: Final = 1_600_000_000.0  # September 2020: a clock that shows less was never set
_HASTE: Final = 0.02  # of the time that passes, at most, is what it catches up: no deadline is shorter for it
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Seconds since the epoch, for what is written down."""


class SystemClock:
    """The machine's clock, without its jumps.

    When somebody sets the clock, no time has passed: no machine is late, and nothing has to wait for longer. So it
    catches up with the new time little by little. Only a clock that was never set is left at once.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        ran: Callable[[], float] | None = None,
        boot_id: Callable[[], str] | None = None,
    ) -> None:
        """``wall`` is the clock that people set, ``ran`` one that nobody can, and ``boot_id`` names its beginning."""
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
        """Seconds by which the wall clock is ahead of this one: what is left of a jump."""
        return self._wall() - self._shown

    def progress(self) -> Progress:
        """How far it has come, for the journal."""
        return Progress(at=self.now(), boot_id=self._boot_id(), boot_time=self._ran())

    def go_on(self, latest: float, progress: Progress | None) -> None:
        """Goes on from what the journal holds: never behind its ``latest`` time.

        On the same boot it goes on by the time that has really passed since.
        """
        shown = max(self.now(), latest)
        if progress is not None and progress.boot_id and progress.boot_id == self._boot_id():
            shown = max(progress.at + max(0.0, self._ran() - progress.boot_time), latest)
        if shown >= _NO_TIME or self._shown < shown:
            self._shown = shown


def wall_time(clock: Clock) -> float:
    """What the wall clock shows, jumps included: clouds charge by it."""
    now = clock.now()
    return now + clock.offset if isinstance(clock, SystemClock) else now


def _read_boot_id() -> str:
    """Empty where the system does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
