"""What the engine says in its log and reports is true, and is said once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.reporting.findings import all_findings, unknown_clouds
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.simcloud.options import SimulatedOptions
from tests.engine.engine_rig import Rig, running
from tests.engine.scripted_cloud import Cloud, desired_state, group, stepped

LAG = timedelta(seconds=20)


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if part in record.getMessage()]


# -- counts ------------------------------------------------------------------------------------------------------------


async def test_all_machines_that_were_taken_in_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where lists lag, machines are taken in with the first list, and the cloud is ready only after a later one."""
    caplog.set_level(logging.INFO, "cloudgraft.engine")
    async with running(Rig(tmp_path, options=SimulatedOptions(list_lag=LAG))) as rig:
        await rig.settle(4)
        await rig.provider.increase_size("g", 5)
        await rig.settle(10)
        await rig.wipe()
        caplog.clear()
        await rig.start()
        await rig.settle(5)
        (ready,) = lines(caplog, "were taken in")
        assert ready.getMessage() == "cloud sim was listed; 5 machines of ours were taken in"
        (event,) = await rig.events("cloud_ready")
        assert event.data["adopted"] == 5


# -- orphans after a lost journal --------------------------------------------------------------------------------------


async def test_a_cloud_that_is_not_known_yet_is_not_said_to_have_no_orphans(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, options=SimulatedOptions(list_lag=LAG))) as rig:
        await rig.settle(4)
        await rig.provider.increase_size("g", 2)
        await rig.settle(10)
        assert unknown_clouds(rig.engine) == []
        await rig.wipe()
        rig.chaos(list={"unavailable": 1})
        await rig.start()
        (unknown,) = unknown_clouds(rig.engine)
        assert unknown.why.startswith("it was not listed yet")
        rig.chaos()
        await rig.turn()
        (unknown,) = unknown_clouds(rig.engine)
        assert "are still being taken in" in unknown.why
        await rig.settle(5)
        assert unknown_clouds(rig.engine) == []
        assert await all_findings(rig.engine) == []
        rig.chaos(list={"unavailable": 1})
        await rig.settle(2)
        (unknown,) = unknown_clouds(rig.engine)
        assert unknown.why.startswith("its lists fail, and the last good one is 20 s old")


# -- a list that lags more than the driver declares --------------------------------------------------------------------


class Lagging(Cloud):
    """Shows machines some lists later than its traits say."""

    def __init__(self, lists: int) -> None:
        super().__init__()
        self._first: dict[str, int] = {}
        self._late = lists

    async def list(self) -> Sequence[Machine]:
        shown = await super().list()
        for machine in shown:
            self._first.setdefault(machine.machine_id, self.lists)
        return [one for one in shown if self.lists - self._first[one.machine_id] >= self._late]


@pytest.mark.parametrize("late", [1, 3], ids=["one list", "long after it counted as gone"])
async def test_a_list_that_lags_beyond_the_declared_delay_is_warned_of_once(
    tmp_path: Path, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Law 3: with a delay that is too small, a machine that exists is taken for missing."""
    async with stepped(tmp_path, desired_state({"a": Lagging(late)}, group())) as case:
        await case.provider.increase_size("g", 3)
        await case.turns()
        await case.turns()
        (warning,) = lines(caplog, "list_delay of 0 s")
        assert warning.levelno == logging.WARNING
        (cloud,) = (await make_report(case.engine)).clouds
        assert cloud.lag == warning.getMessage()


async def test_a_list_within_its_declared_delay_is_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = Lagging(3)
    cloud.traits = DriverTraits(list_delay=timedelta(minutes=10))
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        for _ in range(3):
            await case.turns()
        await case.provider.increase_size("g", 3)
        for _ in range(3):
            await case.turns()
        assert lines(caplog, "list_delay") == []
        assert (await make_report(case.engine)).clouds[0].lag == ""


# -- a driver with a bug -----------------------------------------------------------------------------------------------


class Buggy(Cloud):
    """Raises what a test puts here."""

    error: Exception | None = None

    async def list(self) -> Sequence[Machine]:
        if self.error is not None:
            raise self.error
        return await super().list()

    async def create(self, spec: MachineSpec) -> Machine:
        if self.error is not None:
            raise self.error
        return await super().create(spec)


async def test_the_same_exception_of_a_driver_is_logged_once_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cloudgraft.engine")
    cloud = Buggy()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        cloud.error = FileNotFoundError(2, "No such file or directory", "/etc/cloud/token")
        await case.turns()
        (logged,) = lines(caplog, "unexpected exception in list")
        assert logged.exc_info is not None
        assert "/etc/cloud/token" in logged.getMessage()
        health = case.engine.workers["a"].observer.health
        assert "FileNotFoundError: /etc/cloud/token: No such file or directory" in health.error
        cloud.error = ValueError("nonsense")
        await case.turns()
        assert len(lines(caplog, "unexpected exception in list")) == 2
        assert "nonsense" not in health.error, "any other text may hold anything"
        cloud.error = None
        await case.turns()
        assert len(lines(caplog, "the driver's list works again")) == 1


async def test_the_same_exception_of_create_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Creating(Buggy):
        async def list(self) -> Sequence[Machine]:
            return await Cloud.list(self)

    cloud = Creating()
    hide("hunter2hunter2")
    try:
        async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
            cloud.error = RuntimeError("login with hunter2hunter2 failed")
            await case.provider.increase_size("g", 3)
            await case.turns()
            (logged,) = lines(caplog, "unexpected exception in create")
            assert "login with [secret] failed" in logged.getMessage()
    finally:
        unhide("hunter2hunter2")


# -- the journal -------------------------------------------------------------------------------------------------------


async def test_the_recovery_of_the_journal_is_logged_whichever_change_finds_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stepped(tmp_path, desired_state({"a": Cloud()}, group())) as case:
        await case.turns()
        case.engine.writer.trouble = "the disk is full"
        await case.provider.increase_size("g", 1)
        assert len(lines(caplog, "the journal can be written again")) == 1
        assert case.engine.writer.trouble == ""
        await case.provider.increase_size("g", 1)
        assert len(lines(caplog, "the journal can be written again")) == 1
