"""The judges of drivers are judged themselves: by a simulated cloud that is right, and by one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings
from clouds.judge import Case, Judge, Tell
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


def test_every_judge_names_a_driver_that_is_installed() -> None:
    from cloudgraft.plugins.registry import Kind, find

    for name, judge in judges().items():
        assert find(Kind.DRIVER, judge.driver).name == judge.driver, name
