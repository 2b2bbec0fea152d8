"""Limits the rate of work that others can cause, such as log lines.

A caller that may be flooded asks :class:`LogLimit` before each line, and logs :meth:`LogLimit.dropped` when it is due::

    limit = LogLimit(lines_per_second=20, bytes_per_second=8192)
    if limit.admit(len(line)):
        log.info("%s", line)
    if (dropped := limit.dropped()) is not None:
        log.warning("dropped %s", dropped)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final


class TokenBucket:
    """Allows ``rate`` units a second on average, and ``burst`` units at once. Not thread-safe."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._filled_at = clock()

    def has(self, amount: float = 1.0) -> bool:
        """Returns whether that much may be taken now. An amount above the burst needs a full bucket."""
        now = self._clock()
        self._left = min(self._burst, self._left + max(0.0, now - self._filled_at) * self._rate)
        self._filled_at = now
        return self._left >= min(amount, self._burst)

    def take(self, amount: float = 1.0) -> bool:
        """Takes that much if the bucket has it; returns whether it did.

        An amount above the burst leaves a debt, so that the average holds for it too.
        """
        if not self.has(amount):
            return False
        self._left -= amount
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """How much a limit refused since the last report."""

    lines: int
    size: int  # bytes
    seconds: float

    def __str__(self) -> str:
        """For a log line: ``1200 lines (48000 bytes) in 10 s``."""
        return f"{self.lines} lines ({self.size} bytes) in {self.seconds:.0f} s"


class LogLimit:
    """Limits lines and bytes per second, and counts what it refuses. Thread-safe."""

    def __init__(
        self,
        *,
        lines_per_second: float = 20.0,
        bytes_per_second: float = 8192.0,
        burst_seconds: float = 20.0,
        report_every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """After silence a source may write ``burst_seconds`` worth at once; reports come every ``report_every`` s."""
        self._lines = TokenBucket(rate=lines_per_second, burst=lines_per_second * burst_seconds, clock=clock)
        self._bytes = TokenBucket(rate=bytes_per_second, burst=bytes_per_second * burst_seconds, clock=clock)
        self._report_every = report_every
        self._clock = clock
        self._lock = threading.Lock()
        self._dropped_lines = 0
        self._dropped_size = 0
        self._since: float | None = None  # when the first line since the last report was dropped

    def admit(self, size: int = 0) -> bool:
        """Returns whether a line of that many bytes may be written. Counts the line as dropped if not."""
        with self._lock:
            if self._lines.has() and self._bytes.has(size):
                self._lines.take()
                self._bytes.take(size)
                return True
            self._count(1, size)
            return False

    def drop(self, lines: int, size: int) -> None:
        """Counts lines that the caller drops without calling :meth:`admit` for each."""
        with self._lock:
            self._count(lines, size)

    def dropped(self, *, is_last: bool = False) -> Dropped | None:
        """Returns what was dropped since the last report; None when nothing was, or when the last report is too recent.

        ``is_last`` is for a source that has ended: the report does not wait.
        """
        with self._lock:
            if self._since is None:
                return None
            seconds = self._clock() - self._since
            if seconds < self._report_every and not is_last:
                return None
            report = Dropped(lines=self._dropped_lines, size=self._dropped_size, seconds=seconds)
            self._dropped_lines = self._dropped_size = 0
            self._since = None
            return report

    def _count(self, lines: int, size: int) -> None:
        if self._since is None:
            self._since = self._clock()
        self._dropped_lines += lines
        self._dropped_size += size


_MOST_NAMED: Final = 100  # clients with a line of their own; the others share one
_EVERY: Final = 60.0  # seconds between two lines about one client
_FORGET: Final = 3600.0  # seconds until a count that nobody asked for again is given up, when there is no room


class RepeatLimit:
    """Lets one line about each client, or each reason, pass in a minute, and counts the others. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[Hashable, tuple[float, int]] = {}  # when the last line passed, and how many did not since

    def admit(self, who: Hashable = None) -> int | None:
        """Returns how many lines about this client were dropped since the last one; None: drop this one too."""
        now = self._clock()
        with self._lock:
            if who not in self._seen and len(self._seen) >= _MOST_NAMED:
                self._seen = {
                    name: (at, dropped)
                    for name, (at, dropped) in self._seen.items()
                    if now - at < (_FORGET if dropped else _EVERY)
                }
                who = who if len(self._seen) < _MOST_NAMED else None
            at, dropped = self._seen.get(who, (now - _EVERY, 0))
            is_due = now - at >= _EVERY
            self._seen[who] = (now, 0) if is_due else (at, dropped + 1)
        return dropped if is_due else None
