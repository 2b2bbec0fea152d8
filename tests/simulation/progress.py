"""How far a sweep is, in one line on a terminal. In a pipe there is nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO

_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Runs done, failures, and runs per minute."""

    def __init__(self, total: int, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.done = 0
        self.failures = 0
        self._total = total
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._is_shown = stream.isatty()

    @property
    def per_minute(self) -> float:
        """Runs, since the beginning."""
        return self.done / max(1e-9, (self._clock() - self._began) / 60)

    def step(self, *, has_failed: bool) -> None:
        """One more run is over."""
        self.done += 1
        self.failures += has_failed
        if self._is_shown:
            failures = f"{self.failures} failure{'' if self.failures == 1 else 's'}"
            left = (self._total - self.done) / self.per_minute
            line = (
                f"{self.done} of {self._total} runs, {failures}, {self.per_minute:.1f} per minute, {left:.0f} min left"
            )
            self._stream.write(f"{_CLEAR}{line}")
            self._stream.flush()

    def clear(self) -> None:
        """Makes room for other lines."""
        if self._is_shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
