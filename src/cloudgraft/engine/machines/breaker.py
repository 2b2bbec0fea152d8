"""Circuit breaker for reports about suspiciously many machines at once. Pure.

If a list misses half of a cloud's machines, or shows them broken, the cloud itself is more likely wrong. Repair has a
breaker for each group and counts broken machines; observation has one for each cloud and counts missing ones.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimit:
    """How many machines may be affected at once before the breaker opens, and what closes it."""

    share: float  # of all machines
    few: int  # this many are always believed
    hold: float | None = None  # observed seconds after which the report is believed; None: only an operator accepts it
    looks: int = 1  # consecutive reports that must agree by then


class Turn(enum.Enum):
    """How a report changed a breaker."""

    NONE = "none"
    OPENED = "opened"
    CLOSED = "closed"  # few enough are affected again
    EXPIRED = "expired"  # it has lasted for `hold`, so the report is believed


@dataclass(slots=True)
class Breaker:
    """Whether too many machines are affected at once, and for how long.

    In memory only. After a restart the condition is detected again, its time starts from zero, and an operator has to
    accept again what is not over. So a restart never makes the engine believe a report sooner.
    :mod:`cloudgraft.engine.context` remembers losses of a few machines at a time over restarts.
    """

    is_open: bool = False  # reports about affected machines are not believed
    lasted: float = 0.0  # seconds, observed
    looks: int = 0
    affected: frozenset[str] = frozenset()  # names, without accepted ones
    accepted: frozenset[str] = frozenset()  # names of affected machines about which the report is believed
    total: int = 0

    def look(self, affected: AbstractSet[str], total: int, limit: BreakerLimit, *, passed: float = 0.0) -> Turn:
        """Evaluates one report of affected machines. ``passed``: observed seconds since the last report."""
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
        """Believes the report about these machines. Others that follow are held back."""
        self.accepted |= names & self.affected
        self.affected -= names
        if not self.affected:
            self._close()

    def _close(self) -> None:
        self.is_open, self.lasted, self.looks = False, 0.0, 0
