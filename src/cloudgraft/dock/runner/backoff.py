"""How long to wait before the next try to reach the hub."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

__all__ = ["Backoff"]

_MOST_ASKED: Final = 300.0  # seconds; a hub that asks for more is looked for all the same


class Backoff:
    """Full jitter: anything from nothing to a limit, which doubles from ``first`` to ``longest``.

    A hub that comes back after an outage is found by its drivers one after the other, not by all in one moment.
    """

    def __init__(
        self, *, first: float, longest: float, stable_after: float, chance: Callable[[], float] = random.random
    ) -> None:
        """``chance`` gives a number from 0 to 1."""
        self._first = first
        self._longest = longest
        self._stable_after = stable_after
        self._chance = chance
        self._failures = 0

    def after(self, connected_for: float, *, at_least: float = 0.0) -> float:
        """The seconds to wait after a connection that lasted so long; ``at_least`` is what the hub asked for."""
        if connected_for >= self._stable_after:
            self._failures = 0
        limit = min(self._longest, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return min(at_least, _MOST_ASKED) + limit * self._chance()

    def reset(self) -> None:
        """The next wait is a short one again."""
        self._failures = 0
