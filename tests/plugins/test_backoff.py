from __future__ import annotations

import pytest

from cloudgraft.plugins.host.backoff import Backoff


def test_it_doubles_up_to_a_limit() -> None:
    backoff = Backoff(first=0.5, longest=10, stable_after=60, jitter=lambda: 0.0)
    assert [backoff.after(0) for _ in range(7)] == [0.5, 1, 2, 4, 8, 10, 10]


def test_a_stable_run_makes_it_begin_anew() -> None:
    backoff = Backoff(first=1, longest=100, stable_after=60, jitter=lambda: 0.0)
    assert [backoff.after(59.9), backoff.after(59.9), backoff.after(60), backoff.after(0)] == [1, 2, 1, 2]


def test_jitter_takes_off_a_quarter_at_most() -> None:
    assert Backoff(first=4, longest=100, stable_after=60, jitter=lambda: 1.0).after(0) == 3
    assert 3 <= Backoff(first=4, longest=100, stable_after=60).after(0) <= 4


def test_it_can_go_on_for_years() -> None:
    backoff = Backoff(first=0.5, longest=60, stable_after=60, jitter=lambda: 0.0)
    assert [backoff.after(0) for _ in range(5000)][-1] == pytest.approx(60)
