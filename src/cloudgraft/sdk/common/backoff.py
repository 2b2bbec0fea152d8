"""Computes how long to wait before the next retry or poll."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final

_ENOUGH: Final = 32  # times that a pause grows: the longest is reached by then, and no number grows too large


def pause_after(
    failures: int,
    *,
    first: float,
    longest: float,
    factor: float = 2.0,
    spread: float = 0.0,
    chance: Callable[[], float] = random.random,
) -> float:
    """Seconds to wait after so many failures in a row: ``first`` after one, then ``factor`` times as long after each.

    It is never more than ``longest``. Chance takes off up to ``spread`` of it, so that many who failed in the same
    moment do not come back in the same moment: 0 takes nothing off, 1 leaves anything from nothing to the whole (full
    jitter). ``chance`` gives a number from 0 to 1.
    """
    full = min(longest, first * factor ** min(failures - 1, _ENOUGH))
    return full * (1 - spread * chance()) if spread else full


class Backoff:
    """The pauses of one thing that is tried again and again: those of :func:`pause_after`, with one more failure each.

    A try that lasted ``stable_after`` seconds counts as a success: the pauses begin anew.
    """

    def __init__(
        self,
        *,
        first: float,
        longest: float,
        factor: float = 2.0,
        spread: float = 0.0,
        stable_after: float = math.inf,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """All but ``stable_after`` are those of :func:`pause_after`."""
        self._first = first
        self._longest = longest
        self._factor = factor
        self._spread = spread
        self._stable_after = stable_after
        self._chance = chance
        self._failures = 0

    def next(self) -> float:
        """The seconds to wait after one more failure."""
        self._failures += 1
        return pause_after(
            self._failures,
            first=self._first,
            longest=self._longest,
            factor=self._factor,
            spread=self._spread,
            chance=self._chance,
        )

    def after(self, lasted: float) -> float:
        """The seconds to wait after a try that lasted so long before it ended."""
        if lasted >= self._stable_after:
            self.reset()
        return self.next()

    def reset(self) -> None:
        """It worked: the next pause is the first one again."""
        self._failures = 0
