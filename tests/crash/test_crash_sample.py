"""kill -9 at some of the moments of a long life; `make test-crash` is there for all of them.

CLOUDGRAFT_CRASH_SEED chooses others.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from tests.crash.campaign import VARIANTS, Campaign, sample, second_crashes
from tests.crash.life import Plan, lived
from tests.crash.points import Kind, When
from tests.crash.script import SCRIPT
from tests.crash.served import ServedProgram

SEED = int(os.environ.get("CLOUDGRAFT_CRASH_SEED", "0"))
AT_A_TIME = 4


@pytest.mark.timeout(300)  # by far more than it takes, also on a machine that has much else to do
@pytest.mark.parametrize(
    ("count", "twice"),  # points, of which each kind has one at least; and those with a second crash in the recovery
    [pytest.param(12, 1, id="few"), pytest.param(20, 3, id="some", marks=pytest.mark.thorough)],
)
def test_no_machine_is_lost_doubled_or_foreign_wherever_the_process_is_killed(
    tmp_path: Path, count: int, twice: int
) -> None:
    campaign = Campaign(tmp_path, VARIANTS[0])
    points = sample(campaign.points, count, SEED)
    clouds = cycle(VARIANTS[SEED % len(VARIANTS) :] + VARIANTS[: SEED % len(VARIANTS)])
    plans = [Plan(variant=variant, point=point) for point, variant in zip(points, clouds, strict=False)]
    again = zip(plans[:: -(-len(plans) // twice)], second_crashes(SEED), strict=False)
    plans += [replace(plan, second=second) for plan, second in again]
    results = campaign.run(plans, AT_A_TIME, lambda _: None)
    assert [f"{result.plan}: {result.failure}" for result in results if result.failure] == []
    assert all(result.crashes for result in results)
    assert {(point.kind, point.when) for point in points} == {
        (kind.value, when.value) for kind in Kind for when in When
    }


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_program_itself_killed_again_and_again_at_any_time_still_gets_there(tmp_path: Path) -> None:
    """`cloudgraft serve`, called by gRPC, through the whole life."""
    variant = VARIANTS[2 - SEED % 3]
    plan = Plan(variant=variant, program=ServedProgram, random_kills=5, kill_after=0.8, seed=SEED)
    assert lived(tmp_path / "life", plan, SCRIPT).crashes
