"""Replicas under faults: every answer is explained by some order of the changes, and planted faults are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.replicas.disturbances import FAULTS
from tests.replicas.trial import Trial

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

_LEASE = 3.0
_PLANS = {
    "replicas": ["isolate-leader", "kill", "wake-isolated-leader", "stop", "stop-leader", "isolate", "replica-clock"],
    "database": ["failover", "database-clock", "database-kill", "database-freeze"],
}


def test_every_kind_of_fault_is_in_a_plan() -> None:
    assert sorted(fault for plan in _PLANS.values() for fault in plan) == sorted(FAULTS)


@pytest.mark.parametrize("plan", _PLANS.values(), ids=_PLANS)
async def test_every_answer_is_explained_whatever_goes_wrong(tmp_path: Path, plan: Sequence[str]) -> None:
    result = await Trial(seed=1, plan=plan, lease=_LEASE).run(tmp_path)
    assert not result.wrong, result
    assert sorted(result.injected) == sorted(plan)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ("no fencing", "stop-leader"),
        ("no own clock", "isolate-leader"),
        ("no own clock", "wake-isolated-leader"),
    ],
)
async def test_a_leader_that_does_not_see_its_end_is_found(tmp_path: Path, planted: str, fault: str) -> None:
    """It goes on answering, and without fencing also writing, while another leads."""
    result = await Trial(seed=1, plan=[fault], lease=_LEASE, planted=planted).run(tmp_path)
    assert any("no order of the changes explains" in wrong for wrong in result.wrong), result
