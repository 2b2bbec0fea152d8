"""A clock that is set while the engine runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from cloudgraft.engine.clock import SystemClock

NOW = 1_800_000_000.0


@dataclass
class Hands:
    """A clock on the wall, and one that nobody can set."""

    wall: float = NOW
    ran: float = 50.0

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.ran += seconds


def a_clock(hands: Hands, boot_id: str = "boot") -> SystemClock:
    return SystemClock(lambda: hands.wall, lambda: hands.ran, lambda: boot_id)


@pytest.mark.parametrize("jump", [-6 * 3600.0, 30 * 3600.0])
def test_a_clock_that_is_set_makes_nothing_late_and_catches_up_slowly(jump: float) -> None:
    hands = Hands()
    clock = a_clock(hands)
    hands.passes(10)
    assert clock.now() == pytest.approx(hands.wall)
    before, hands.wall = hands.wall, hands.wall + jump
    assert clock.now() == pytest.approx(before)
    assert clock.offset == pytest.approx(jump)
    hands.passes(60)
    assert clock.now() == pytest.approx(before + (61.2 if jump > 0 else 58.8))
    hands.passes(60 * 30 * 3600)
    assert clock.now() == pytest.approx(hands.wall)


def test_a_clock_that_showed_no_time_at_all_is_believed_at_once_when_it_is_set() -> None:
    hands = Hands(wall=0.0)
    clock = a_clock(hands)
    hands.wall = NOW
    assert clock.now() == pytest.approx(hands.wall)


def test_it_never_runs_behind_the_journal() -> None:
    hands = Hands(wall=NOW - 6 * 3600)
    clock = a_clock(hands)
    clock.go_on(NOW, None)
    assert clock.now() == pytest.approx(NOW)
    hands.passes(100)
    assert clock.now() == pytest.approx(NOW + 98), "it waits for the wall clock without standing still"


@pytest.mark.parametrize("jump", [-6 * 3600.0, 30 * 3600.0])
def test_on_the_same_boot_it_knows_for_how_long_the_process_was_away(jump: float) -> None:
    hands = Hands(wall=NOW)
    saved = a_clock(hands).progress()
    hands.passes(50)
    hands.wall += jump
    later = a_clock(hands)
    later.go_on(NOW - 5, saved)
    assert later.now() == pytest.approx(NOW + 50)
    assert later.offset == pytest.approx(jump)


def test_after_a_reboot_the_wall_clock_is_all_there_is() -> None:
    hands = Hands(wall=NOW)
    saved = a_clock(hands).progress()
    hands.wall, hands.ran = NOW + 3600, 7.0
    later = a_clock(hands, boot_id="another")
    later.go_on(NOW, saved)
    assert later.now() == pytest.approx(NOW + 3600)


def test_a_journal_of_a_clock_that_was_never_set_does_not_hold_it_back() -> None:
    hands = Hands(wall=1000.0)
    saved = a_clock(hands).progress()
    hands.wall = NOW
    later = a_clock(hands)
    later.go_on(1000.0, saved)
    assert later.now() == pytest.approx(NOW)


async def test_the_clock_of_this_machine_goes() -> None:
    clock = SystemClock()
    first = clock.now()
    await asyncio.sleep(0.01)
    assert clock.now() > first
