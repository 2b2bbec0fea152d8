"""Time, as a thing that tests and the demo can hold in their hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from cloudgraft.engine.timer import SystemTimer

__all__ = ["Clock", "SystemClock"]


_JUMP: Final = 24 * 3600.0  # seconds
_HASTE: Final = 0.5  # of the time that passes, at most, is what it catches up


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Seconds since the epoch, for what is written down."""


class SystemClock:
    """The machine's clock, without its jumps.

    When somebody sets the clock, no time has passed: no machine is late, and nothing has to wait for longer. So it
    catches up with the new time little by little; only a jump of more than a day is taken at once, for then what it
    showed before was no time at all.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ran: Callable[[], float] | None = None) -> None:
        """``wall`` is the clock that people set, ``ran`` one that nobody can."""
        self._wall = wall
        self._ran = ran or SystemTimer().now
        self._shown, self._at = wall(), self._ran()

    def now(self) -> float:
        """Seconds since the epoch; never goes back by less than a day."""
        at = self._ran()
        passed, self._at = at - self._at, at
        ahead = self._wall() - (self._shown + passed)
        if abs(ahead) < _JUMP:
            ahead = max(-passed * _HASTE, min(passed * _HASTE, ahead))
        self._shown += passed + ahead
        return self._shown
