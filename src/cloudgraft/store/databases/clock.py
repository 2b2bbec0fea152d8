"""Compares this host's wall clock with the database's.

Tokens, certificates and budgets are on wall time, so a replica whose clock is wrong should not lead. But the database's
own clock may be the wrong one, and then every replica differs from it. So a replica beyond the bound gives way for a
while, and leads when no other replica has taken the lease in that time: two clocks that agree outvote one that does
not, and a wrong clock of the database interrupts the service for seconds only.
"""

from __future__ import annotations

import math


class DatabaseClock:
    """The difference that was measured last, and whether it keeps this replica from leading."""

    def __init__(self, *, bound: float = math.inf) -> None:
        """``bound`` is the greatest difference in seconds with which a replica leads without giving way."""
        self.bound = bound
        self.offset: float | None = None  # seconds by which the database's clock is ahead; None: never measured
        self._least = 0.0  # how far the clocks are apart at least, however long the answer took
        self._may_lead = False  # although its clock is off: no other replica took the lease

    def measure(self, sent: float, answered: float, database: float) -> None:
        """Records the database's time, which was read between two times of this host."""
        low, high = sorted((database - sent, database - answered))
        self.offset = (low + high) / 2
        self._least = max(0.0, low, -high)
        if not self.is_off:
            self._may_lead = False

    @property
    def is_off(self) -> bool:
        """Whether the clocks differ by more than the bound, whatever the delay of the answer."""
        return self._least > self.bound

    def allow(self) -> None:
        """Lets this replica lead, because no other took the lease. Ends when its clock was right and is wrong again."""
        self._may_lead = self.is_off

    def trouble(self) -> str:
        """The problem, for people; empty when the clocks agree."""
        if not self.is_off or self.offset is None:
            return ""
        side = "behind" if self.offset > 0 else "ahead of"
        return (
            f"this host's clock is {abs(self.offset):.0f} s {side} the database's, and store.maxClockOffset is "
            f"{self.bound:g} s: set the clocks of this host and of the database"
        )

    def why_step_back(self) -> str:
        """The reason for a leader to give way to other replicas now; empty when it stays."""
        return "" if self._may_lead else self.trouble()
