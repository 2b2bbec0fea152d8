"""A right driver before a cloud that is small, slow to answer or busy: nothing of it is called wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgraft.conformance.driver import DriverSettings, judge_driver
from cloudgraft.conformance.report import Report, Status
from cloudgraft.sdk.driver import Idempotency
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds, Span
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions

SETTINGS = DriverSettings(machine={"shape": "small"}, late=timedelta(0), interruptions=4)


async def judged(
    chaos: Chaos | None = None, *, quota: int | None = None, idempotency: Idempotency = Idempotency.TOKEN
) -> tuple[Report, SimulatedCloud]:
    options = SimulatedOptions(
        boot_time=timedelta(0), delete_time=timedelta(0), quota=quota, idempotency=idempotency, page_size=50
    )
    cloud = SimulatedCloud(options, chaos=chaos)
    return await judge_driver(lambda: SimulatedDriver.of(cloud), SETTINGS), cloud


def unclear(report: Report) -> dict[str, str]:
    return {result.check: result.message for result in report.results if result.status is Status.INCONCLUSIVE}


async def test_a_quota_of_five_names_the_room_that_a_check_needs() -> None:
    report, cloud = await judged(quota=5)
    assert not report.is_broken, report.failures
    assert not report.count(Status.BLOCKED)
    assert set(unclear(report)) == {"many_creates_at_once"}
    message = unclear(report)["many_creates_at_once"]
    assert "needs room for 10 machines; the cloud refused number 6: the account may have 5 machines" in message
    assert "--machines" in message
    assert not cloud.machines()


@pytest.mark.parametrize("idempotency", Idempotency, ids=lambda one: one.value)
async def test_creates_with_an_unknown_outcome_are_settled_by_list(idempotency: Idempotency) -> None:
    report, cloud = await judged(Chaos(create=Faults(lost=Odds(chance=0.4))), idempotency=idempotency)
    assert not report.is_broken, report.failures
    assert not report.count(Status.BLOCKED)
    assert not cloud.machines()


async def test_an_answer_that_never_comes_leaves_only_what_is_about_answers_open() -> None:
    report, _ = await judged(Chaos(create=Faults(lost=Odds(chance=1))))
    assert not report.is_broken, report.failures
    assert set(unclear(report)) == {
        "create_answers_with_the_machine",
        "a_second_create_is_answered_as_declared",
        "what_can_never_work_is_refused",
    }
    assert "unknown 3 times of 3" in unclear(report)["create_answers_with_the_machine"]


async def test_a_cloud_that_makes_nothing_is_no_verdict_on_the_driver() -> None:
    report, _ = await judged(Chaos(create=Faults(dropped=Odds(chance=1))))
    assert not report.is_broken, report.failures
    assert not report.count(Status.BLOCKED)
    assert "no list showed a machine" in unclear(report)["a_new_machine_is_listed"]


@pytest.mark.thorough
async def test_refusals_that_pass_are_met_again() -> None:
    often = Odds(chance=0.15)
    chaos = Chaos(
        retry_after=0.01,
        latency=Span(0, 0.001),
        create=Faults(rate_limits=often, unavailable=often),
        delete=Faults(rate_limits=often, lost=often),
        list=Faults(rate_limits=often),
    )
    report, cloud = await judged(chaos)
    assert not report.is_broken, report.failures
    assert not report.count(Status.BLOCKED)
    assert not cloud.machines()
