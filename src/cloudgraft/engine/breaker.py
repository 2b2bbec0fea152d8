"""Holds back what is reported of suspiciously many machines at once. Pure.

A cloud that misses or breaks half of its machines in one list is more likely wrong itself. Repair has a breaker for
each group and counts broken machines; observation has one for each cloud and counts missing ones.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

__all__ = ["Breaker", "BreakerLimit", "Turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimit:
    """How many machines may be affected at once before nothing is believed, and what ends that."""

    share: float  # of all machines
    few: int  # so many are always believed
    hold: float | None = None  # seconds after which they are believed all the same; None: only an operator ends it
    looks: int = 1  # in a row that must have shown it by then


class Turn(enum.Enum):
    """How a look changed a breaker."""

    NONE = "none"
    OPENED = "opened"
    CLOSED = "closed"  # few enough are affected again
    EXPIRED = "expired"  # it has lasted, so it is believed


@dataclass(slots=True)
class Breaker:
    """Whether too many are affected at once, and since when. In memory only: after a restart it is found again."""

    opened_at: float | None = None
    looks: int = 0
    affected: frozenset[str] = frozenset()  # names, without those that are believed
    accepted: frozenset[str] = frozenset()  # names of those that are believed, while they are affected
    total: int = 0

    @property
    def is_open(self) -> bool:
        """Whether nothing is believed of those that are affected."""
        return self.opened_at is not None

    def look(self, affected: AbstractSet[str], total: int, now: float, limit: BreakerLimit) -> Turn:
        """Takes in one report: who is affected, of how many."""
        self.accepted &= affected
        self.affected, self.total = frozenset(affected - self.accepted), total
        if len(self.affected) <= max(limit.few, int(limit.share * total)):
            was_open = self.is_open
            self._close()
            return Turn.CLOSED if was_open else Turn.NONE
        self.looks += 1
        if self.opened_at is None:
            self.opened_at = now
            return Turn.OPENED
        if limit.hold is not None and self.looks >= limit.looks and now - self.opened_at >= limit.hold:
            self.accept()
            return Turn.EXPIRED
        return Turn.NONE

    def accept(self) -> None:
        """Believes it of all that are affected now. Others that follow them are held back again."""
        self.accepted |= self.affected
        self.affected = frozenset()
        self._close()

    def _close(self) -> None:
        self.opened_at, self.looks = None, 0
