"""The crash test itself, tested: an engine with a bug does not get through it, and one without does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Idempotency
from tests.crash.life import Life, Phase, Plan, lived
from tests.crash.points import Point
from tests.crash.script import SCRIPT
from tests.crash.setting import Variant

pytestmark = pytest.mark.timeout(300)  # each wait may take as long as a test has by itself

START, SCALE_UP = SCRIPT[:2]
WITHOUT = pytest.param("", marks=pytest.mark.thorough)  # that an engine without a bug passes is `test_crash_sample` too
AN_HOUR = 3600.0
# A crash after which the list does not show for a while what was made, in a cloud that makes everything twice if asked.
NOT_TOLD_YET = Variant(idempotency=Idempotency.NONE, create_timeout=30.0)


def wait_for_the_crash(life: Life) -> None:
    life.until(lambda _: life.crashes > 0)


def make_up_for_it(life: Life) -> None:
    """After some lists without it the machine is shown; what was made of that is for the verdict."""
    before = life.sky.cloud.calls()["list"]
    life.until(lambda _: life.sky.cloud.calls()["list"] > before + 5)
    life.sky.chaos()
    life.until(lambda view: len(view["web"].running) + len(view["web"].failed) == 1)


LATE_LIST = Phase(
    name="late list",
    begin=lambda life: life.sky.chaos(listLag=AN_HOUR),
    steps=[lambda life: life.autoscaler.raise_to("web", 1), wait_for_the_crash, make_up_for_it],
)


def live(directory: Path, fault: str, point: Point, script: Sequence[Phase], variant: Variant | None = None) -> None:
    lived(directory / "life", Plan(variant=variant or Variant(), point=point, fault=fault), script)


@pytest.mark.parametrize("fault", [WITHOUT, "act before intent"])
def test_it_fails_when_the_intent_is_not_written_first(tmp_path: Path, fault: str) -> None:
    point = Point(SCALE_UP.name, "create", "after", 1)
    if not fault:
        live(tmp_path, fault, point, [START, SCALE_UP])
        return
    with pytest.raises(AssertionError, match="the journal says that it was never asked for"):
        live(tmp_path, fault, point, [START, SCALE_UP])


@pytest.mark.parametrize("fault", [WITHOUT, "trust silence"])
def test_it_fails_when_an_unknown_outcome_is_not_settled_by_a_list(tmp_path: Path, fault: str) -> None:
    point = Point(LATE_LIST.name, "create", "after", 1)
    if not fault:
        live(tmp_path, fault, point, [START, LATE_LIST], NOT_TOLD_YET)
        return
    with pytest.raises(AssertionError, match="was made again before the outcome of the first call was settled"):
        live(tmp_path, fault, point, [START, LATE_LIST], NOT_TOLD_YET)


@pytest.mark.parametrize("fault", [WITHOUT, "answer before journal"])
def test_it_fails_when_a_call_is_answered_before_the_journal_has_it(tmp_path: Path, fault: str) -> None:
    point = Point(SCALE_UP.name, "commit", "before", 1)
    if not fault:
        live(tmp_path, fault, point, [START, SCALE_UP])
        return
    with pytest.raises(AssertionError, match=r"was promised to be|the journal has no such machine"):
        live(tmp_path, fault, point, [START, SCALE_UP])
