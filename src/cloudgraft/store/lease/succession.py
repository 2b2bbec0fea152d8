"""Decides whether a waiting replica is about to take over from a leader of another rollout. Pure.

Kubernetes replaces the pods of a Deployment one after the other, and ends no pod that is ready before another one is. A
replica that waits for the lease is not ready, so the leader would never be replaced. The exception: of the replicas of
a new rollout that wait for a leader of another one, the first in line reports itself ready. Kubernetes then ends that
leader, and whoever connects in the moment without a leader reaches the replica that is about to lead.
"""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 600.0  # seconds for which a replica may stand in line; a rollout may have been stopped halfway
_NAMED: Final = re.compile(r", rollout (\S+) \([0-9a-f]+\)$")


def named_after(holder: str, rollout: str) -> str:
    """The holder's name with its rollout, which other replicas read from the lease."""
    return f"{holder}, rollout {rollout}" if rollout else holder


def rollout_of(holder: str) -> str:
    """The rollout of a lease's holder; empty when it has none, as in releases before 0.2.0."""
    found = _NAMED.search(holder)
    return found[1] if found else ""


class Succession:
    """Follows who leads, for one replica."""

    def __init__(self, rollout: str = "") -> None:
        """``rollout`` is the name that all replicas of one rollout share; without one nothing is assumed."""
        self._rollout = rollout
        self._since: float | None = None  # when a leader of another rollout was seen first
        self._is_over = not rollout
        self.is_first = False  # in line; the database gives that place to one replica

    def saw(self, holder: str, now: float) -> None:
        """Takes the name of the leader; empty when there is none at the moment."""
        if not holder:
            return
        if rollout_of(holder) == self._rollout:
            self._is_over = True  # this replica waits, or belongs to the rollout that is being replaced
        elif self._since is None:
            self._since = now

    def is_in_line(self, now: float) -> bool:
        """Whether this replica waits for a leader of another rollout to end."""
        return not self._is_over and self._since is not None and now - self._since < LONGEST

    def is_next(self, now: float) -> bool:
        """Whether this replica is about to lead."""
        return self.is_first and self.is_in_line(now)
