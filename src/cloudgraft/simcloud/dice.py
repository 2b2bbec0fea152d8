"""What the odds come to: counted faults run out, the others are drawn. Not safe for threads: the cloud guards it."""

from __future__ import annotations

import random
from collections import Counter

from cloudgraft.simcloud.chaos import Odds, Span

__all__ = ["Dice"]


class Dice:
    """Seeded, so that a test meets the same faults each time."""

    def __init__(self, seed: int, hits: Counter[str]) -> None:
        """``hits`` counts how often each fault struck, beyond the life of these dice."""
        self._random = random.Random(seed)  # noqa: S311 - a game of chance, not a secret
        self._asked: Counter[str] = Counter()
        self._hits = hits

    def strikes(self, fault: str, odds: Odds) -> bool:
        """Whether the fault of that name strikes this time."""
        turn = self._asked[fault] - odds.after
        self._asked[fault] += 1
        hit = turn >= 0 and (turn < odds.next or self._draws(odds.chance))
        if hit:
            self._hits[fault] += 1
        return hit

    def seconds(self, span: Span) -> float:
        """A time within the span."""
        return span.low if span.high is None else self._random.uniform(span.low, span.high)

    def _draws(self, chance: float) -> bool:
        # No number is drawn for what cannot happen, so that setting one fault does not shift all the others.
        return chance > 0 and self._random.random() < chance
