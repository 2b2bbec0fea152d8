"""The crash sweep of the engine with `exec` as its driver: kill -9, also while scripts run, and nothing is doubled."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Idempotency
from tests.crash.campaign import Campaign, sample
from tests.crash.life import Plan, lived
from tests.crash.script import SCRIPT
from tests.crash.setting import Variant
from tests.drivers.exec.exec_crash_child import ExecProcess

VARIANTS = (
    Variant(create_timeout=20),
    Variant(idempotency=Idempotency.UNIQUE_NAME, create_timeout=20),
    Variant(idempotency=Idempotency.NONE, list_lag=0.06, create_timeout=3),
)
POINTS = 40
AT_A_TIME = 2


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_no_machine_is_lost_doubled_or_foreign_wherever_the_process_is_killed(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, Variant())
    points = sample(campaign.points, POINTS, seed=5)
    plans = [
        Plan(variant=variant, point=point, program=ExecProcess)
        for point, variant in zip(points, cycle(VARIANTS), strict=False)
    ]
    results = campaign.run(plans, AT_A_TIME, lambda _: None)
    assert [f"{result.plan}: {result.failure}" for result in results if result.failure] == []
    assert all(result.crashes for result in results)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_time_it_still_gets_there(tmp_path: Path, seed: int) -> None:
    """The kills fall where they like: in the middle of scripts, most often."""
    plan = Plan(variant=VARIANTS[0], program=ExecProcess, random_kills=8, kill_after=1.0, seed=seed)
    assert lived(tmp_path / "life", plan, SCRIPT).crashes
