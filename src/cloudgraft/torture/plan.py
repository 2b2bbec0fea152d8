"""Plans a run from its seed: the bounds, and the moment of each kill. Pure."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass

from cloudgraft.sdk.errors import InvalidArgumentError

MOST_MINUTES = 55  # guards.maxCreatesPerHour bounds all creates of a run only if it takes less than an hour
_SPARE = 0.1  # of the creates: for attempts that the engine has to repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a run."""

    machines: int = 6  # at a time
    creates: int = 60  # calls to create, in all
    kills: int = 10
    minutes: float = 10.0  # until the last kill; settling and cleaning up come afterwards

    def __post_init__(self) -> None:
        """Refuses bounds within which nothing can be judged."""
        if self.machines < 1 or self.creates < self.machines or self.kills < 1:
            raise InvalidArgumentError("needs at least 1 machine, 1 kill, and as many creates as machines")
        if not 0 < self.minutes <= MOST_MINUTES:
            raise InvalidArgumentError(f"the time must be more than 0 and at most {MOST_MINUTES} minutes")

    def may_order(self, ordered: int, kills_left: int) -> int:
        """How many machines may still be ordered before the next kill, so that every kill finds some under way."""
        left = int(self.creates * (1 - _SPARE)) - ordered
        return max(0, min(left, max(2, left // (kills_left + 1))))


class Moment(enum.Enum):
    """When a server is killed. Most faults are found right after something has begun."""

    ANY = "at any time"
    START = "while it starts"
    CHANGE = "during a change"
    CREATE = "during a create"
    DELETE = "during a delete"
    # Never planned: what came of a plan.
    AFTER = "right after a call"
    BETWEEN = "between calls"


_WEIGHTS = {Moment.ANY: 2, Moment.START: 1, Moment.CHANGE: 2, Moment.CREATE: 5, Moment.DELETE: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One planned kill."""

    number: int  # from 1
    moment: Moment
    delay: float  # a share, from 0 to 1: how far into the moment
    with_children: bool  # kills what the server has started in the same instant; else that may end by itself


def kills(bounds: Bounds, seed: int) -> Iterator[Kill]:
    """The kills of a run. The first is during a create, where most faults are."""
    dice = random.Random(f"kills {seed}")  # noqa: S311 - moments, not secrets
    moments, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    for number in range(1, bounds.kills + 1):
        moment = dice.choices(moments, weights)[0] if number > 1 else Moment.CREATE
        yield Kill(number=number, moment=moment, delay=dice.random(), with_children=dice.random() < 0.5)
