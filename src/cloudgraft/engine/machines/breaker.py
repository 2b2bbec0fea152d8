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
    hold: float | None = None  # observed seconds after which they are believed; None: only an operator ends it
    looks: int = 1  # in a row that must have shown it by then


class Turn(enum.Enum):
    """How a look changed a breaker."""

    NONE = "none"
    OPENED = "opened"
    CLOSED = "closed"  # few enough are affected again
    EXPIRED = "expired"  # it has lasted, so it is believed


@dataclass(slots=True)
class Breaker:
    """Whether too many are affected at once, and for how long.

    In memory only: after a restart it is found again, its time begins anew, and an operator has to accept again what is
    not over. So a restart never has anything believed sooner; that losses of a few at a time are not forgotten is the
    matter of :mod:`cloudgraft.engine.context`.
    """

    is_open: bool = False  # nothing is believed of those that are affected
    lasted: float = 0.0  # seconds, observed
    looks: int = 0
    affected: frozenset[str] = frozenset()  # names, without those that are believed
    accepted: frozenset[str] = frozenset()  # names of those that are believed, while they are affected
    total: int = 0

    def look(self, affected: AbstractSet[str], total: int, limit: BreakerLimit, *, passed: float = 0.0) -> Turn:
        """Takes in one report: who is affected, of how many. ``passed``: the seconds observed since the one before."""
        self.accepted &= affected
        self.affected, self.total = frozenset(affected - self.accepted), total
        if len(self.affected) <= max(limit.few, int(limit.share * total)):
            was_open = self.is_open
            self._close()
            return Turn.CLOSED if was_open else Turn.NONE
        self.looks += 1
        if not self.is_open:
            self.is_open = True
            return Turn.OPENED
        self.lasted += passed
        if limit.hold is not None and self.looks >= limit.looks and self.lasted >= limit.hold:
            self.accept(self.affected)
            return Turn.EXPIRED
        return Turn.NONE

    def accept(self, names: AbstractSet[str]) -> None:
        """Believes it of these. Others that follow them are held back."""
        self.accepted |= names & self.affected
        self.affected -= names
        if not self.affected:
            self._close()

    def _close(self) -> None:
        self.is_open, self.lasted, self.looks = False, 0.0, 0
