"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Doubles from ``first`` to ``longest``, with up to a quarter taken off so that many plugins do not move as one."""

    def __init__(
        self, *, first: float, longest: float, stable_after: float, jitter: Callable[[], float] = random.random
    ) -> None:
        """``jitter`` gives a number from 0 to 1."""
        self._first = first
        self._longest = longest
        self._stable_after = stable_after
        self._jitter = jitter
        self._failures = 0

    def after(self, ran_for: float) -> float:
        """The seconds to wait after a run that lasted so long. A stable run wipes out what was before."""
        if ran_for >= self._stable_after:
            self._failures = 0
        doublings = min(self._failures, 32)  # beyond this the longest wait is reached, or there is none
        self._failures += 1
        return min(self._longest, self._first * 2.0**doublings) * (1 - self._jitter() / 4)
