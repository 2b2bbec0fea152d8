"""Decides the outcome of one call, and whether a fault with the configured odds occurs."""

from __future__ import annotations

import contextlib
import enum
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, RateLimitedError, UnavailableError
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds, Span

# -- odds --------------------------------------------------------------------------------------------------------------
# Counted faults run out, the others are drawn. Not safe for threads: the cloud guards it.


class Dice:
    """Seeded, so that a test meets the same faults each time."""

    def __init__(self, seed: int, hits: Counter[str]) -> None:
        """``hits`` counts how often each fault occurred, also beyond the life of these dice."""
        self._random = random.Random(seed)  # noqa: S311 - a game of chance, not a secret
        self._asked: Counter[str] = Counter()
        self._hits = hits

    def strikes(self, fault: str, odds: Odds) -> bool:
        """Whether the fault of that name occurs this time."""
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
        # No number is drawn for impossible faults, so that setting one fault does not shift all the others.
        return chance > 0 and self._random.random() < chance


# -- outcome of a call -------------------------------------------------------------------------------------------------
# The call is carried out or not, now or later, and the caller gets an answer or not.


T = TypeVar("T")


class Operation(enum.Enum):
    """The kinds of calls that have faults of their own."""

    CREATE = "create"
    DELETE = "delete"
    LIST = "list"
    READ = "read"  # shapes and prices: only slow, never wrong
    MARK = "mark"  # the same


class LostAnswerError(DeadlineError):
    """No answer is sent. The caller cannot know whether the call was carried out."""


class CloudFailureError(DeadlineError):
    """The answer is 500. The caller cannot know whether the call was carried out."""

    http_status = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one call: first wait ``delay`` seconds, then :meth:`carry_out`."""

    fault: str = ""  # a field of Faults; empty for none
    delay: float = 0.0
    retry_after: float = 0.0
    late_by: float = 0.0

    def carry_out(self, work: Callable[[], T], postpone: Callable[[Callable[[], object], float], None]) -> T:
        """The result of the work, or the fault instead; ``postpone`` takes work for later."""
        match self.fault:
            case "rate_limits":
                raise RateLimitedError("the simulated cloud asks for fewer calls", retry_after=self.retry_after)
            case "unavailable":
                raise UnavailableError("the simulated cloud is not available; nothing was done")
            case "errors_after" | "lost":
                with contextlib.suppress(CloudgraftError):  # the caller does not get a refusal either
                    work()
            case "late":
                postpone(work, self.late_by)
            case "":
                return work()
        if self.fault in {"errors", "errors_after"}:
            raise CloudFailureError("the simulated cloud failed with 500; whether it was done is not known")
        raise LostAnswerError("the simulated cloud did not answer; whether it was done is not known")


_NEVER_WRONG = frozenset({Operation.READ, Operation.MARK})
# In this order: refusals before lost answers.
_FAULTS = ("rate_limits", "unavailable", "errors", "errors_after", "dropped", "lost", "late")


def draw_outcome(operation: Operation, chaos: Chaos, dice: Dice) -> Outcome:
    """Draws the outcome of the next call of this kind."""
    faults = Faults() if operation in _NEVER_WRONG else getattr(chaos, operation.value)
    latency = chaos.latency if faults.latency is None else faults.latency
    struck = (name for name in _FAULTS if dice.strikes(f"{operation.value}.{name}", getattr(faults, name)))
    return Outcome(
        fault=next(struck, ""),
        delay=dice.seconds(latency),
        retry_after=chaos.retry_after,
        late_by=chaos.late_by,
    )
