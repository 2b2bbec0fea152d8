"""Judges whether the kills of a run have found anything to break. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cloudgraft.torture.plan import Kill, Moment

_CALLS = (Moment.CREATE, Moment.DELETE, Moment.CHANGE)
_ADVICE = (
    "give it more time with --minutes or fewer --kills, raise --most-creates, see that the cloud may have as many "
    "machines as --machines, and set list_delay and engine.createTimeout no higher than the cloud needs"
)


@dataclass(slots=True)
class Coverage:
    """Counts the kills whose moment came, and those whose moment did not."""

    planned: int
    _done: Counter[Moment] = field(default_factory=Counter)
    _came: Counter[Moment] = field(default_factory=Counter)

    def add(self, kill: Kill, *, has_come: bool) -> None:
        """Counts one kill by the moment that was planned for it."""
        self._done[kill.moment] += 1
        self._came[kill.moment] += has_come

    def why_too_thin(self, made: int) -> str:
        """Why nothing can be concluded from a run without a violation; empty when enough kills hit a call.

        ``made`` is the number of machines that the cloud made.
        """
        done = self._done.total()
        if 2 * done < self.planned:
            return f"the time was up after {done} of {self.planned} kills, which proves too little: {_ADVICE}"
        for what, moments in (("create", (Moment.CREATE,)), ("call", _CALLS)):
            wanted, came = (sum(counts[moment] for moment in moments) for counts in (self._done, self._came))
            if 2 * came < wanted:
                return (
                    f"only {came} of {wanted} kills that were to hit a {what} found one under way, because too little "
                    f"was ordered in the time; that proves too little: {_ADVICE}"
                )
        if 2 * made < done:
            return f"the cloud made only {made} machines in {done} kills, which proves too little: {_ADVICE}"
        return ""
