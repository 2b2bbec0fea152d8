"""The pauses between tries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk.common.backoff import Backoff, pause_after

seconds = st.floats(min_value=0.001, max_value=1000)
shares = st.floats(min_value=0, max_value=1)


def test_it_doubles_up_to_a_limit() -> None:
    backoff = Backoff(first=0.5, longest=10)
    assert [backoff.next() for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_it_may_grow_more_slowly() -> None:
    backoff = Backoff(first=1, longest=4, factor=1.5)
    assert [backoff.next() for _ in range(5)] == [1, 1.5, 2.25, 3.375, 4]


def test_a_stable_run_makes_it_begin_anew() -> None:
    backoff = Backoff(first=1, longest=100, stable_after=60)
    assert [backoff.after(59.9), backoff.after(59.9), backoff.after(60), backoff.after(0)] == [1, 2, 1, 2]


def test_so_does_a_success() -> None:
    backoff = Backoff(first=1, longest=100)
    assert [backoff.next(), backoff.next()] == [1, 2]
    backoff.reset()
    assert backoff.next() == 1


def test_without_a_time_that_is_stable_no_run_is_long_enough() -> None:
    backoff = Backoff(first=1, longest=100)
    assert [backoff.after(1e12), backoff.after(1e12)] == [1, 2]


@pytest.mark.parametrize(("spread", "chance", "pause"), [(0.25, 1.0, 3), (0.25, 0.0, 4), (1.0, 1.0, 0), (0.0, 1.0, 4)])
def test_chance_takes_off_the_spread_at_most(spread: float, chance: float, pause: float) -> None:
    assert Backoff(first=4, longest=100, spread=spread, chance=lambda: chance).next() == pause


def test_it_is_really_chance_unless_told_otherwise() -> None:
    pauses = {pause_after(1, first=4, longest=100, spread=0.25) for _ in range(20)}
    assert len(pauses) > 1
    assert all(3 <= pause <= 4 for pause in pauses)


def test_it_can_go_on_for_years() -> None:
    backoff = Backoff(first=0.5, longest=60)
    assert [backoff.next() for _ in range(5000)][-1] == 60
    assert pause_after(10**9, first=0.5, longest=60) == 60


@given(seconds, seconds, st.floats(min_value=1, max_value=3), shares, shares, st.integers(min_value=1, max_value=200))
def test_a_pause_has_its_bounds_and_never_shrinks_by_a_failure_more(
    first: float, longest: float, factor: float, spread: float, chance: float, failures: int
) -> None:
    pauses = [
        pause_after(count, first=first, longest=longest, factor=factor, spread=spread, chance=lambda: chance)
        for count in (failures, failures + 1)
    ]
    assert pauses == sorted(pauses)
    assert min(first, longest) * (1 - spread) * 0.999 <= pauses[0] <= longest


@given(seconds, st.integers(min_value=1, max_value=50))
def test_a_backoff_counts_the_failures_for_one(first: float, failures: int) -> None:
    backoff = Backoff(first=first, longest=60)
    pauses = [backoff.next() for _ in range(failures)]
    assert pauses == [pause_after(count, first=first, longest=60) for count in range(1, failures + 1)]
