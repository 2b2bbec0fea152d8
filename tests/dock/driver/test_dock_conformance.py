"""Driver conformance through the dock: the simulated driver dials in, and an engine could not tell the difference."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.conformance.report import Status
from cloudgraft.sdk.driver import Driver, Idempotency
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conformance.judging import judged
from tests.dock.driver.connected_driver import Docked, DockedProgram
from tests.simcloud.sim_process import SimcloudProcess

NOWHERE = "http://127.0.0.1:9"  # nothing listens on the port that only discards
SETTINGS = DriverSettings(machine={"shape": "small"}, late=timedelta(seconds=1), page_size=12, is_lasting=False)
TIME = timedelta(milliseconds=50)
NOT_HERE = {"a_crash_in_mid_create_adds_one_at_most", "a_new_driver_knows_the_old_machines"}
NO_PROXY = {"a_lost_answer_is_an_unknown_outcome"}


@pytest.mark.parametrize(
    ("idempotency", "elsewhere"),
    [
        pytest.param(Idempotency.TOKEN, False, id="in this process"),
        pytest.param(Idempotency.TOKEN, True, id="elsewhere", marks=pytest.mark.thorough),
        pytest.param(Idempotency.UNIQUE_NAME, False, id="unique name", marks=pytest.mark.thorough),
        pytest.param(Idempotency.NONE, True, id="not idempotent", marks=pytest.mark.thorough),
    ],
)
async def test_the_simulated_driver_that_has_dialled_in_passes(idempotency: Idempotency, elsewhere: bool) -> None:
    options = SimulatedOptions(idempotency=idempotency, boot_time=TIME, delete_time=TIME, page_size=12)

    def troubled(trouble: Trouble) -> Driver | None:
        changed = {
            Trouble.QUOTA: replace(options, quota=0),
            Trouble.STOCK_OUT: replace(options, stock={"small": 0}),
            Trouble.AWAY: replace(options, url=NOWHERE),
        }
        return Docked(SimulatedDriver(changed[trouble]), elsewhere=elsewhere) if trouble in changed else None

    settings = replace(SETTINGS, troubled=troubled)
    report = await judged(lambda: Docked(SimulatedDriver(options), elsewhere=elsewhere), settings)
    assert not report.count(Status.BLOCKED)
    skipped = {result.check for result in report.results if result.status is Status.SKIPPED}
    assert skipped >= NOT_HERE
    assert len(skipped - NOT_HERE - NO_PROXY) <= 3, "only what depends on idempotency"


@pytest.mark.timeout(240)  # a dozen processes are started, one after the other
@pytest.mark.thorough
async def test_a_driver_that_is_a_process_of_its_own_passes_also_when_it_is_killed(tmp_path: Path) -> None:
    """Law 3, by the cloud's own ledger."""

    async def crash(driver: Driver) -> None:
        assert isinstance(driver, DockedProgram)
        driver.kill()

    with SimcloudProcess(tmp_path / "cloud.db", "--boot-time", "50ms", "--delete-time", "50ms") as cloud:
        cloud.chaos(latency=[0, 0.01])
        settings = replace(SETTINGS, is_lasting=True, crash=crash)
        report = await judged(lambda: DockedProgram(tmp_path, url=cloud.url, pageSize=12), settings)
        assert NOT_HERE.isdisjoint(result.check for result in report.results if result.status is Status.SKIPPED)
        names = [entry["name"] for entry in cloud.ledger()]
        assert len(names) == len(set(names)), "no name was made twice"
