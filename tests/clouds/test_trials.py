"""The judges of drivers are judged themselves: by a simulated cloud that is right, and by one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import Level
from cloudgraft.plugins.registry import Kind, find
from clouds.judge import Case, Judge, Progress, ProviderCase, Tell
from clouds.judges import judges
from clouds.record import read_record, write_record
from clouds.trial import Check, Trial, try_driver
from tests.simcloud.sim_process import SimcloudProcess


class Simulated(Judge):
    driver = "simulated"

    def __init__(self, *, why: str = "", idempotency: str = "token") -> None:
        self._why = why
        self._idempotency = idempotency

    def missing(self) -> str:
        return self._why

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        options = directory / "options.yaml"
        options.write_text("{bootTime: 100ms, deleteTime: 0s, idempotency: none}", "utf-8")
        with SimcloudProcess(directory / "cloud.db", "--options", str(options)) as cloud:
            yield Case(
                judged_by="a simulated cloud",
                cloud={"driver": "simulated", "url": cloud.url, "idempotency": self._idempotency},
                settings=DriverSettings(machine={"shape": "small"}, at_once=2, interruptions=1),
                alive=lambda: [machine["name"] for machine in cloud.ledger() if machine["goneAt"] is None],
                more={"it is there": lambda: None},
            )


@pytest.mark.thorough
def test_a_driver_that_is_right_passes_all_of_it(tmp_path: Path) -> None:
    trial = try_driver("sim", Simulated(idempotency="none"), tmp_path, lambda _: None)
    assert trial.is_passed, trial
    assert [check.name for check in trial.checks] == ["conformance", "scale-up and scale-down", "it is there"]
    assert trial.judged_by == "a simulated cloud"


@pytest.mark.thorough
def test_a_driver_that_promises_too_much_fails_and_it_is_told_why(tmp_path: Path) -> None:
    """Its cloud makes a second machine of one name; the driver says that it does not."""
    trial = try_driver("sim", Simulated(idempotency="token"), tmp_path, lambda _: None)
    assert not trial.is_passed
    conformance = trial.checks[0]
    assert not conformance.is_passed
    assert "D13" in conformance.detail


def test_what_cannot_be_had_is_not_run_which_is_not_passed(tmp_path: Path) -> None:
    trial = try_driver("sim", Simulated(why="install it"), tmp_path, lambda _: None)
    assert (trial.not_run, trial.is_passed) == ("install it", False)


def test_a_judge_that_does_not_start_is_a_failure(tmp_path: Path) -> None:
    class Broken(Simulated):
        @contextmanager
        def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
            raise OSError("no such program")
            yield

    trial = try_driver("sim", Broken(), tmp_path, lambda _: None)
    assert not trial.is_passed
    assert "no such program" in trial.checks[0].detail


class Wide(Judge):
    """Of a provider that nobody serves: only what is made of its results is looked at."""

    driver = "wide"
    kind = Kind.PROVIDER

    def __init__(self, *, status: Status = Status.PASSED, scaled: int = 2) -> None:
        self._status = status
        self._scaled = scaled

    def missing(self) -> str:
        return ""

    def _conformance(self, progress: Progress) -> Report:
        result = Result(
            check="it_grows",
            title="It grows",
            rules=("R49",),
            level=Level.MUST,
            status=self._status,
            message="it did not",
        )
        progress(result)
        return Report(server="s", release="r", started=datetime.now(UTC), results=(result,))

    def _scale(self) -> None:
        assert self._scaled == 2, f"{self._scaled} instead of 2"

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[ProviderCase]:
        yield ProviderCase(
            judged_by="a wide cloud",
            conformance=self._conformance,
            scale=self._scale,
            alive=list,
            more={"it is there": lambda: None},
        )


def test_a_provider_is_judged_by_the_kit_and_scaled_without_an_engine(tmp_path: Path) -> None:
    said: list[str] = []
    trial = try_driver("wide", Wide(), tmp_path, said.append)
    assert trial.is_passed, trial
    assert [check.name for check in trial.checks] == ["conformance", "scale-up and scale-down", "it is there"]
    assert trial.checks[0].detail == "1 passed, 0 not judged"
    assert "wide: it_grows: passed" in said


def test_a_provider_that_does_not_conform_or_scale_fails_and_it_is_told_why(tmp_path: Path) -> None:
    trial = try_driver("wide", Wide(status=Status.FAILED, scaled=3), tmp_path, lambda _: None)
    assert [check.is_passed for check in trial.checks] == [False, False, True]
    assert "it_grows (R49): it did not" in trial.checks[0].detail
    assert "3 instead of 2" in trial.checks[1].detail


def test_only_what_passed_is_written_down_and_what_was_not_run_keeps_its_place(tmp_path: Path) -> None:
    file = tmp_path / "judged.json"
    good = Trial(name="a", driver="a", judged_by="A 1.0", checks=(Check(name="one", is_passed=True, detail="3 of 3"),))
    write_record([good, Trial(name="b", driver="b", not_run="none here")], file)
    record = read_record(file)
    assert list(record) == ["a"]
    assert record["a"]["checks"] == ["one: 3 of 3"]
    write_record([Trial(name="a", driver="a", not_run="none here")], file)
    assert read_record(file) == record
    write_record([Trial(name="a", driver="a", checks=(Check(name="one", is_passed=False),))], file)
    assert read_record(file) == {}


def test_every_judge_names_a_driver_or_a_provider_that_is_installed() -> None:
    for name, judge in judges().items():
        assert find(judge.kind, judge.driver).name == judge.driver, name
