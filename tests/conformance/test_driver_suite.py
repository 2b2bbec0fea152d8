"""DriverConformance as its users meet it: as a pytest class, and as one call; and that it cleans up in any case."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import (
    DRIVER_CHECKS,
    DRIVER_RULES,
    DriverSettings,
    Trouble,
    judge_driver,
)
from cloudgraft.conformance.report import Result, Status
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError
from scripts.contract_pages import driver_contract_page
from tests.conditions import until
from tests.conformance.faulty_drivers import SETTINGS, DeletesByPrefix, DeletesNothing, GoodDriver, Zoo

FAULTY = """
from cloudgraft.conformance.driver import DriverConformance
from tests.conformance.faulty_drivers import Doubles, Zoo

ZOO = Zoo()

class TestMine(DriverConformance):
    machine = {"shape": "small"}
    page_size = 6

    def make_driver(self):
        return Doubles(ZOO)
"""


@pytest.mark.thorough
def test_a_failed_test_says_what_came_why_it_matters_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(FAULTY)
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-k",
        "second_create",
    ]
    env = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "1 failed, 1 skipped" in done.stdout  # the other follows from it
    for part in (
        "test_driver[a_second_create_adds_nothing]",
        "create() was called twice, one after the other, and there are 2 machines named conformance-",
        "D13 (must): Where create is idempotent",
        "why: After a lost answer the engine creates again",
        "fix: Send the name as the cloud's client token",
        "The last calls:",
    ):
        assert part in done.stdout


SHARED = """
from pathlib import Path
from cloudgraft.conformance.driver import DriverConformance
from tests.conformance.faulty_drivers import GoodDriver, Zoo

ZOO = Zoo()

class TestMine(DriverConformance):
    machine = {"shape": "small"}

    def make_driver(self):
        return GoodDriver(ZOO)

    def settings(self):
        with Path("runs").open("a") as runs:
            runs.write("x")
        return super().settings()
"""


def test_all_tests_of_a_class_share_one_run_of_what_was_selected(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SHARED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "sane or declared or behind"]
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "5 passed" in done.stdout, done.stdout
    assert (tmp_path / "runs").read_text() == "x"


async def test_progress_is_reported_check_by_check() -> None:
    cloud, told = Zoo(), list[Result]()
    report = await judge_driver(lambda: GoodDriver(cloud), SETTINGS, progress=told.append)
    assert sorted(told, key=lambda result: result.check) == sorted(report.results, key=lambda result: result.check)
    assert [result.check for result in report.results] == [check.name for check in DRIVER_CHECKS]
    assert (report.server, report.release) == ("GoodDriver", "")


async def test_only_some_rules_bring_the_checks_that_they_build_on() -> None:
    cloud = Zoo()
    report = await judge_driver(lambda: GoodDriver(cloud), SETTINGS, only=["D4"])
    assert [result.check for result in report.results] == [
        "traits_are_declared",
        "list_makes_sense",
        "create_answers_with_the_machine",
        "a_new_machine_is_listed",
    ]
    with pytest.raises(InvalidArgumentError, match="X1"):
        await judge_driver(lambda: GoodDriver(cloud), SETTINGS, only=["X1"])


async def test_the_quick_checks_are_those_that_others_build_on_and_the_costly_mistakes() -> None:
    cloud = Zoo()
    report = await judge_driver(lambda: GoodDriver(cloud), SETTINGS, quick=True)
    ran = {result.check for result in report.results}
    assert report.is_passed
    assert {"many_creates_at_once", "two_creates_of_one_name_at_once", "a_cancelled_call_ends"} <= ran
    assert len(ran) < len(DRIVER_CHECKS)
    with pytest.raises(InvalidArgumentError, match="not both"):
        await judge_driver(lambda: GoodDriver(Zoo()), SETTINGS, quick=True, only=["D4"])


async def test_checks_run_side_by_side_only_after_the_first_ones_have_passed() -> None:
    class Watched(GoodDriver):
        async def create(self, spec: MachineSpec) -> Machine:
            groups.add(asyncio.current_task())
            most.append(len([task for task in groups if task is not None and not task.done()]))
            await asyncio.sleep(0.005)
            return await super().create(spec)

    class Mixed(DeletesByPrefix, Watched):
        pass

    for kind, is_together in ((Watched, True), (Mixed, False)):
        groups: set[asyncio.Task[object] | None] = set()
        most: list[int] = []
        cloud = Zoo()
        settings = replace(SETTINGS, at_once=2, interruptions=1, page_size=0)
        await judge_driver(lambda kind=kind, cloud=cloud: kind(cloud), settings)  # type: ignore[misc]
        assert (max(most) > settings.at_once + 1) is is_together, max(most)


async def test_every_call_of_a_check_is_in_its_result() -> None:
    cloud = Zoo()
    report = await judge_driver(lambda: GoodDriver(cloud), SETTINGS, only=["D23"])
    (result,) = [result for result in report.results if result.check == "deleting_again_is_no_error"]
    assert [call.rpc for call in result.exchanges if call.rpc != "list"] == ["create", *["delete"] * 4]
    assert all(call.seconds >= 0 and not call.is_failed for call in result.exchanges)


async def test_a_cloud_that_is_away_is_no_verdict_on_the_driver() -> None:
    report = await judge_driver(lambda: GoodDriver(Zoo(), Trouble.AWAY), SETTINGS)
    assert not report.is_passed
    assert not report.failures
    assert report.results[0].status is Status.ERROR
    assert "UnavailableError('the zoo is closed')" in report.results[0].message


async def test_a_driver_that_does_not_start_is_no_verdict_either() -> None:
    class Shut(GoodDriver):
        async def start(self) -> None:
            raise UnavailableError("the zoo is closed")

    report = await judge_driver(lambda: Shut(Zoo()), SETTINGS, only=["D1"])
    assert [(result.status, result.exchanges[-1].rpc) for result in report.results] == [(Status.ERROR, "start")]


class Waiting(GoodDriver):
    """The third create waits, with its machine made."""

    created = 0

    async def create(self, spec: MachineSpec) -> Machine:
        machine = await super().create(spec)
        type(self).created += 1
        if type(self).created == 3:
            await asyncio.sleep(60)
        return machine


async def test_a_run_that_is_cancelled_deletes_what_it_made() -> None:
    cloud = Zoo()
    Waiting.created = 0
    run = asyncio.create_task(judge_driver(lambda: Waiting(cloud), SETTINGS))
    await until(lambda: Waiting.created == 3)
    assert cloud.animals
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert cloud.animals == {}


async def test_what_a_cancelled_run_leaves_is_named_in_the_exception() -> None:
    class Both(DeletesNothing, Waiting):
        pass

    cloud = Zoo()
    Both.created = 0
    run = asyncio.create_task(judge_driver(lambda: Both(cloud), replace(SETTINGS, patience=timedelta(seconds=1))))
    await until(lambda: Both.created == 3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await run
    notes = "".join(getattr(raised.value, "__notes__", ()))
    assert all(animal.ident in notes for animal in cloud.animals.values())


async def test_machines_that_are_not_ours_survive_every_check() -> None:
    cloud = Zoo()
    stranger = cloud.add("database", {"owner": "somebody"})
    report = await judge_driver(lambda: GoodDriver(cloud), SETTINGS)
    assert report.is_passed
    assert list(cloud.animals.values()) == [stranger]


async def test_a_driver_whose_list_need_not_show_everything_is_judged_by_what_it_shows() -> None:
    class Partial(GoodDriver):
        traits = replace(GoodDriver.traits, complete_list=False)

        async def list(self) -> Sequence[Machine]:
            return [*await super().list()][::2]

    cloud = Zoo()
    report = await judge_driver(lambda: Partial(cloud), SETTINGS)
    assert not report.failures
    assert cloud.animals == {}


@pytest.mark.parametrize(
    "wrong",
    [{"at_once": 1}, {"interruptions": 0}, {"page_size": -1}, {"patience": timedelta(0)}, {"late": timedelta(-1)}],
)
def test_settings_that_cannot_be_judged_by_are_refused(wrong: Mapping[str, int | timedelta]) -> None:
    with pytest.raises(InvalidArgumentError):
        DriverSettings(**wrong)  # type: ignore[arg-type]


def test_the_page_for_authors_has_every_rule() -> None:
    described = re.findall(r"^### (D\d+)\n\n\*\*(.+)\.\*\* \((\w+)\)$", driver_contract_page(), re.MULTILINE)
    assert described == [(rule.id, rule.title, rule.level) for rule in DRIVER_RULES.values()]


def test_secrets_are_not_shown_by_the_settings_themselves() -> None:
    assert "hush-hush" not in repr(DriverSettings(secrets=["hush-hush"]))
