"""Decides by this host's own clock when a lease may be taken. Pure: no I/O.

The lease is a counter in the database. Its holder raises it at each renewal; everybody else watches it. A lease may be
taken once its row has not changed for the whole length of the lease, by the watcher's own BOOTTIME. No clock is ever
compared with that of another host, so no clock that jumps elects a second leader.

Why no two replicas take themselves for the leader: a holder trusts its lease for ``USABLE`` of its length, counted
from before it sent its last renewal that was confirmed. A watcher counts the whole length from after it has read the
result of that renewal, or a later one. So the watcher may take the lease only after the holder has stopped, as long as
the two clocks run at rates that differ by less than a quarter.

A database that fails over to a standby without the last commits shows an older row, perhaps one that looks free while
a leader that it does not know is still at work. Each row is therefore watched together with the run of the server that
shows it, and names the one on which it was taken. Another server starts the wait again, and a lease that was released
on another one is not free at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["USABLE", "LeaseRow", "LeaseWatch"]

USABLE: Final = 0.8  # of a lease, for its holder; the rest is for clocks that run at different rates


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The row of the `lease` table, as one server showed it."""

    server: str  # that shows it; changes when the database is restarted, restored or fails over
    taken_on: str  # the server that gave the lease; empty: none ever did
    holder: str  # empty: released
    epoch: int
    renewals: int
    seconds: float  # for how long its holder leads without a renewal


class LeaseWatch:
    """Remembers the row, since when it has been the same, and which claim was ours last."""

    def __init__(self, seconds: float) -> None:
        """``seconds`` is the length of this replica's own leases."""
        self._seconds = seconds
        self._row: LeaseRow | None = None
        self._since = math.inf
        self._ours: tuple[str, int, str] | None = None
        self._ends = -math.inf

    def see(self, row: LeaseRow, now: float) -> None:
        """Takes note of a row. ``now`` must be read after the database has answered, not before."""
        if row != self._row:
            self._row, self._since = row, now

    def ask(self, holder: str, epoch: int, server: str) -> None:
        """Takes note of a claim that is about to be committed. The answer may be lost."""
        self._ours = (holder, epoch, server)

    def confirm(self, sent: float) -> None:
        """Takes note of a claim or a renewal that was confirmed. ``sent`` is from before it was asked for."""
        self._ends = sent + self._seconds

    def own_seconds(self, now: float) -> float:
        """For how long the claim that was confirmed last may be held."""
        return max(0.0, self._ends - now)

    def seconds_left(self, now: float) -> float:
        """For how long the row must stay the same before the lease may be taken; below 0: it was free so long ago."""
        if self._row is None:
            return math.inf
        if self._row.holder:
            wait = self._row.seconds
        elif self._row.taken_on in ("", self._row.server):
            wait = 0.0
        else:  # another server may have given it to somebody since, and this one may not know
            wait = self._seconds
        return self._since + wait - now

    def is_still_ours(self, now: float) -> bool:
        """Whether no other replica can have led since we last did: then there is nothing to wait for."""
        if self._row is None or self._ours is None:
            return False
        holder, epoch, server = self._ours
        if (self._row.holder, self._row.epoch) != (holder, epoch):
            return False
        # A server without the last commits does not know who has led since; but within our lease nobody has.
        return self._row.server == server or self.own_seconds(now) > self._seconds * (1 - USABLE)
