"""A clock that is set while the engine runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from cloudgraft.engine.clock import SystemClock


@dataclass
class Hands:
    """A clock on the wall, and one that nobody can set."""

    wall: float = 1_000_000.0
    ran: float = 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.ran += seconds


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_makes_nothing_late_and_catches_up_slowly(jump: float) -> None:
    hands = Hands()
    clock = SystemClock(lambda: hands.wall, lambda: hands.ran)
    hands.passes(10)
    assert clock.now() == pytest.approx(hands.wall)
    before, hands.wall = hands.wall, hands.wall + jump
    assert clock.now() == pytest.approx(before)
    hands.passes(60)
    assert clock.now() == pytest.approx(before + (90 if jump > 0 else 30))
    hands.passes(3 * 3600)
    assert clock.now() == pytest.approx(hands.wall)


def test_a_clock_that_showed_no_time_at_all_is_believed_at_once_when_it_is_set() -> None:
    hands = Hands(wall=0.0)
    clock = SystemClock(lambda: hands.wall, lambda: hands.ran)
    hands.wall = 1_800_000_000.0
    assert clock.now() == pytest.approx(hands.wall)


async def test_the_clock_of_this_machine_goes() -> None:
    clock = SystemClock()
    first = clock.now()
    await asyncio.sleep(0.01)
    assert clock.now() > first
