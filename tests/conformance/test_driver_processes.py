"""Every driver in the tree passes: simulated in process and over HTTP, and those that are programs of their own."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble, judge_driver
from cloudgraft.conformance.report import Report, Status
from cloudgraft.plugins.host.process import PluginSpec
from cloudgraft.plugins.host.remote import RemoteDriver
from cloudgraft.plugins.host.supervisor import Supervisor
from cloudgraft.sdk.driver import Driver, Idempotency
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conformance.judging import judged
from tests.plugins.plugin_programs import ROOT, TIMING, with_packages
from tests.simcloud.sim_process import SimcloudProcess

NOWHERE = "http://127.0.0.1:9"  # nothing listens on the port that only discards
# Far more than anything takes here: a slow computer must not fail.
SETTINGS = DriverSettings(machine={"shape": "small"}, late=timedelta(seconds=1))


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def passed(report: Report, *skipped: str) -> None:
    """Everything passes, and nothing is skipped but these."""
    assert report.is_passed, [(r.check, r.message) for r in report.results if r.status not in ("passed", "skipped")]
    assert not report.count(Status.BLOCKED)
    assert {result.check for result in report.results if result.status is Status.SKIPPED} == set(skipped)


AFTER = {
    Trouble.ERROR_AFTER: Faults(errors_after=Odds(next=1)),
    Trouble.LOST_ANSWER: Faults(lost=Odds(next=1)),
}
NO_LOSS = "a_lost_answer_is_an_unknown_outcome"
NO_PROCESS = "a_crash_in_mid_create_adds_one_at_most"
NO_TWINS = "of_two_with_one_name_one_is_deleted"
ONLY_IDEMPOTENT = (
    "a_second_create_adds_nothing",
    "a_second_create_is_answered_as_declared",
    "two_creates_of_one_name_at_once",
)


@pytest.mark.parametrize("idempotency", Idempotency, ids=lambda one: one.value)
async def test_the_simulated_cloud_in_this_process(idempotency: Idempotency) -> None:
    options = SimulatedOptions(
        idempotency=idempotency,
        boot_time=milliseconds(50),
        delete_time=milliseconds(50),
        page_size=12,
    )

    def troubled(trouble: Trouble) -> Driver | None:
        if trouble in AFTER:
            return SimulatedDriver.of(SimulatedCloud(options, chaos=Chaos(create=AFTER[trouble])))
        changed = {
            Trouble.QUOTA: replace(options, quota=0),
            Trouble.STOCK_OUT: replace(options, stock={"small": 0}),
            Trouble.AWAY: replace(options, url=NOWHERE),
        }
        return SimulatedDriver(changed[trouble]) if trouble in changed else None

    settings = replace(SETTINGS, page_size=12, is_lasting=False, troubled=troubled)
    report = await judge_driver(lambda: SimulatedDriver(options), settings)
    skipped = ONLY_IDEMPOTENT if idempotency is Idempotency.NONE else (NO_TWINS,)
    passed(report, *skipped, NO_PROCESS, "a_new_driver_knows_the_old_machines")


@pytest.mark.parametrize(
    ("idempotency", "lag"),
    [
        pytest.param(Idempotency.TOKEN, 0, id="token"),
        pytest.param(Idempotency.UNIQUE_NAME, 0, id="unique name", marks=pytest.mark.thorough),
        pytest.param(Idempotency.NONE, 0, id="none", marks=pytest.mark.thorough),
        pytest.param(Idempotency.TOKEN, 100, id="lag", marks=pytest.mark.thorough),
    ],
)
async def test_the_simulated_cloud_over_http(idempotency: Idempotency, lag: int, tmp_path: Path) -> None:
    arguments = ("--idempotency", idempotency.value, "--list-lag", f"{lag}ms")
    times = ("--boot-time", "50ms", "--delete-time", "50ms")
    with SimcloudProcess(tmp_path / "cloud.db", *arguments, *times) as cloud:
        options = SimulatedOptions(url=cloud.url, idempotency=idempotency, list_lag=milliseconds(lag), page_size=12)

        def troubled(trouble: Trouble) -> Driver | None:
            orders: dict[Trouble, dict[str, object]] = {
                Trouble.QUOTA: {"quota": 0},
                Trouble.STOCK_OUT: {"stock": {"small": 0}},
                Trouble.RATE_LIMIT: {"create": {"rateLimits": {"next": 1}}},
                Trouble.ERROR_AFTER: {"create": {"errorsAfter": {"next": 1}}},
                Trouble.LOST_ANSWER: {"create": {"lost": {"next": 1}}},
            }
            if trouble is Trouble.AWAY:
                return SimulatedDriver(replace(options, url=NOWHERE))
            if trouble not in orders:
                return None
            return Troubled(options, lambda: cloud.chaos(**orders[trouble]), lambda: cloud.chaos(latency=LATENCY))

        cloud.chaos(latency=LATENCY)
        settings = replace(SETTINGS, page_size=12, troubled=troubled)
        report = await judged(lambda: SimulatedDriver(options), settings)
        passed(report, *(ONLY_IDEMPOTENT if idempotency is Idempotency.NONE else (NO_TWINS,)), NO_PROCESS)
        assert all(entry["deletes"] for entry in cloud.ledger())


LATENCY = [0, 0.01]  # seconds: so that calls can be given up in the middle


class Troubled(SimulatedDriver):
    """Its cloud is in trouble for as long as it is open."""

    def __init__(self, options: SimulatedOptions, begin: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__(options)
        self.begin, self.end = begin, end

    async def start(self) -> None:
        await super().start()
        self.begin()

    async def close(self) -> None:
        self.end()
        await super().close()


PLUGIN = "from cloudgraft.plugin import serve; from cloudgraft.simcloud.driver import SimulatedDriver as D; serve(D)"


@pytest.mark.timeout(240)  # a dozen processes are started, one after the other
@pytest.mark.thorough
async def test_a_driver_in_a_process_of_its_own_also_when_it_is_killed(tmp_path: Path) -> None:
    async def crash(driver: Driver) -> None:
        assert isinstance(driver, RemoteDriver)
        assert isinstance(driver.link, Supervisor)
        pid = driver.link.status.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    with SimcloudProcess(tmp_path / "cloud.db", "--boot-time", "50ms", "--delete-time", "50ms") as cloud:
        cloud.chaos(latency=LATENCY)
        spec = PluginSpec(name="sim", command=with_packages(PLUGIN), options={"url": cloud.url, "pageSize": 12})
        settings = replace(SETTINGS, page_size=12, crash=crash)
        report = await judge_driver(lambda: RemoteDriver.plugin(spec, timing=TIMING), settings)
        passed(
            report,
            NO_TWINS,
            "trouble_is_called_by_its_name",
            "a_cloud_that_is_away_has_no_list",
            NO_LOSS,
        )
        assert all(entry["deletes"] for entry in cloud.ledger())


@pytest.mark.parametrize(
    ("program", "name", "machine"),
    [("first_driver", "LabDriver", {}), ("plugin_driver", "FileDriver", {"shape": "small"})],
)
async def test_the_drivers_of_the_documentation(
    program: str, name: str, machine: dict[str, str], tmp_path: Path
) -> None:
    kind = getattr(module(ROOT / "examples" / f"{program}.py"), name)
    options = kind.Options(directory=tmp_path / "machines", room_for=40)
    await judged(lambda: kind(options), replace(SETTINGS, machine=machine, page_size=12))


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[made.__name__] = made
    spec.loader.exec_module(made)
    return made
