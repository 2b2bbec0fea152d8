"""How long a call waits: never less than its cloud asks for, and never for ever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines.outcomes import LONGEST_HINT, delay, hinted, until_next_list
from cloudgraft.engine.reconcile.observer import Health
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, RateLimitedError, UnavailableError
from tests.engine.scripted_cloud import Cloud, desired_state, group, stepped

SETTINGS = CloudSettings(
    name="a",
    observe_every=timedelta(seconds=10),
    backoff_initial=timedelta(seconds=1),
    backoff_max=timedelta(seconds=60),
)


class Busy(Cloud):
    """Fails as it is told to."""

    error: CloudgraftError | None = None

    async def list(self) -> Sequence[Machine]:
        if self.error is not None:
            raise self.error
        return await super().list()


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [
        (None, 0.0),
        (0, 0.0),
        (-5.0, 0.0),
        (float("nan"), 0.0),
        ("60", 0.0),
        (60, 60.0),
        (LONGEST_HINT, LONGEST_HINT),
        (1e12, LONGEST_HINT),
        (float("inf"), LONGEST_HINT),
    ],
)
def test_what_a_cloud_asks_for_is_believed_within_reason(hint: Any, seconds: float) -> None:
    assert hinted(hint) == seconds


@pytest.mark.parametrize("failures", [1, 2, 7, 5000])
def test_a_wait_is_as_long_as_the_cloud_asks_for_at_least_and_never_for_ever(failures: int) -> None:
    assert 0.5 <= delay(SETTINGS, failures) <= 60
    assert delay(SETTINGS, failures, 300) == 300
    assert delay(SETTINGS, failures, 1e12) == LONGEST_HINT


@pytest.mark.parametrize(
    ("failures", "hint", "is_hurried", "least", "most"),
    [
        (0, None, False, 10, 10),
        (0, None, True, 2, 2),
        (1, None, False, 2, 2),
        (1, 0.5, False, 2, 2),
        (1, 60, True, 60, 60),
        (2, None, True, 10, 10),
        (2, 60, False, 60, 60),
        (9, None, False, 30, 60),
        (9, 300, False, 300, 300),
        (1, 1e12, False, LONGEST_HINT, LONGEST_HINT),
    ],
)
def test_a_list_that_failed_comes_again_soon_unless_the_cloud_asked_to_be_left_alone(
    failures: int, hint: float | None, is_hurried: bool, least: float, most: float
) -> None:
    assert least <= until_next_list(SETTINGS, failures, hint, is_hurried=is_hurried) <= most


async def test_a_cloud_that_limits_lists_is_asked_again_when_it_said(tmp_path: Path) -> None:
    cloud = Busy()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        worker = case.engine.workers["a"]
        usual = worker.until_next_list()
        cloud.error = RateLimitedError("too many requests", retry_after=90)
        for _ in range(2):
            await case.turns(1)
            assert worker.until_next_list() == 90
        cloud.error = UnavailableError("away")
        await case.turns(1)
        assert worker.until_next_list() < 90, "what it said before is over"
        cloud.error = None
        await case.turns(1)
        assert worker.until_next_list() == usual


@pytest.mark.parametrize(
    ("hint", "is_down"), [(None, False), (60.0, False), (61.0, True), (1e9, True), ("soon", False)]
)
def test_a_cloud_that_wants_to_be_left_alone_for_long_is_down_with_its_first_word(hint: Any, is_down: bool) -> None:
    """R35, law 7: else nobody is told for an hour, and what is asked for meanwhile waits for its deadline."""
    health = Health("lab", listed_at=1.0)
    error = UnavailableError("come again later")
    error.retry_after = hint
    assert health.bad(error, 2.0) is is_down
    assert (health.refusal() is not None) is is_down
