"""When something that is possible is done: delays, counted from when it became possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

__all__ = ["Pace"]


class Pace:
    """Counts delays. What is not asked about in a whole turn is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Hashable, float] = {}
        self._asked: dict[Hashable, float] = {}
        self._next = float("inf")

    def begin(self) -> None:
        """Another turn."""
        self._since, self._asked = self._asked, {}
        self._next = float("inf")

    def due(self, key: Hashable, seconds: float) -> bool:
        """Whether it has been possible for that long."""
        now = self._clock()
        since = self._asked[key] = self._asked.get(key, self._since.get(key, now))
        if now - since >= seconds:
            return True
        self._next = min(self._next, since + seconds)
        return False

    def wait(self, longest: float) -> float:
        """Seconds until the next thing is due."""
        return max(0.0, min(longest, self._next - self._clock()))
