"""When a lease may be taken, by one's own clock alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.lease.lease_row import LeaseRow, LeaseWatch

HELD = LeaseRow(server="s1", taken_on="s1", holder="a", epoch=4, renewals=7, seconds=10.0)
FREE = replace(HELD, holder="")


@pytest.fixture
def watch() -> LeaseWatch:
    return LeaseWatch(15.0)


def test_a_lease_that_is_held_is_free_after_its_holders_length(watch: LeaseWatch) -> None:
    watch.see(HELD, 100.0)
    watch.see(HELD, 105.0)
    assert watch.seconds_left(105.0) == 5.0
    watch.see(replace(HELD, renewals=8), 109.0)
    assert watch.seconds_left(109.0) == 10.0


@pytest.mark.parametrize("row", [FREE, replace(FREE, taken_on="", epoch=0)])
def test_a_released_or_a_new_lease_is_free_at_once(watch: LeaseWatch, row: LeaseRow) -> None:
    watch.see(row, 100.0)
    assert watch.seconds_left(100.0) <= 0


def test_what_was_released_on_another_server_may_have_been_taken_there_since(watch: LeaseWatch) -> None:
    """A standby without the last commits does not know that another replica has taken it."""
    watch.see(replace(FREE, server="s2"), 100.0)
    assert watch.seconds_left(100.0) == 15.0


def test_an_older_row_on_another_server_is_watched_from_the_beginning(watch: LeaseWatch) -> None:
    watch.see(HELD, 100.0)
    watch.see(replace(HELD, server="s2"), 109.0)  # while it did not look, another may have led on s1
    assert watch.seconds_left(109.0) == 10.0


def test_our_own_claim_needs_no_wait_on_the_server_that_gave_it(watch: LeaseWatch) -> None:
    watch.ask("a", 4, "s1")
    watch.see(HELD, 100.0)
    assert watch.is_still_ours(1e9)
    watch.see(replace(HELD, epoch=5), 100.0)
    assert not watch.is_still_ours(100.0)
    watch.see(replace(HELD, holder="b"), 100.0)
    assert not watch.is_still_ours(100.0)


def test_on_another_server_our_claim_is_ours_only_while_nobody_can_have_led_since(watch: LeaseWatch) -> None:
    watch.ask("a", 4, "s1")
    watch.confirm(100.0)
    watch.see(replace(HELD, server="s2"), 100.0)
    assert watch.is_still_ours(111.9)
    assert not watch.is_still_ours(112.1)  # four fifths of 15 s


@pytest.mark.parametrize(("sent", "answered", "is_off"), [(0.0, 1.0, True), (0.0, 599.0, False), (1.0, 0.0, True)])
def test_a_clock_is_off_only_if_no_delay_explains_the_difference(sent: float, answered: float, is_off: bool) -> None:
    clock = DatabaseClock(bound=60.0)
    clock.measure(sent, answered, database=600.0)
    assert clock.is_off is is_off
    assert bool(clock.trouble()) is is_off
    assert bool(clock.why_step_back()) is is_off


def test_a_clock_that_is_off_is_told_with_its_side_and_the_bound() -> None:
    clock = DatabaseClock(bound=60.0)
    assert (clock.offset, clock.trouble()) == (None, "")
    clock.measure(600.0, 600.0, database=0.0)
    assert clock.offset == -600.0
    assert clock.trouble() == (
        "this host's clock is 600 s ahead of the database's, and store.maxClockOffset is 60 s: set the clocks of this "
        "host and of the database"
    )
    clock.measure(0.0, 0.0, database=90.0)
    assert "90 s behind the database's" in clock.trouble()


def test_who_has_given_way_once_leads_until_its_clock_is_right_and_wrong_again() -> None:
    clock = DatabaseClock(bound=60.0)
    clock.measure(0.0, 0.0, database=600.0)
    clock.allow()
    assert clock.why_step_back() == ""
    assert clock.trouble()
    clock.measure(0.0, 0.0, database=601.0)
    assert clock.why_step_back() == ""
    clock.measure(0.0, 0.0, database=1.0)
    clock.measure(0.0, 0.0, database=600.0)
    assert clock.why_step_back()
