"""The dock's benchmark counts right: an operation that is lost, repeated or answered wrongly ends the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.dock_client import Count
from bench.dock_measure import wrong
from bench.dock_words import EchoWords, V0Words, V1Words
from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0

ROOT = Path(__file__).resolve().parents[2]


def test_each_operation_is_counted_once_and_a_second_time_is_told() -> None:
    count = Count()
    for driver, number in ((0, 1), (0, 2), (1, 1), (0, 2)):
        count.see(driver, number)
    assert count.take() == {"seen": 3, "repeated": 1, "strange": 0}
    count.strange()
    assert count.take() == {"seen": 0, "repeated": 0, "strange": 1}


def test_what_is_lost_repeated_late_or_wrong_is_found() -> None:
    good = {"answered": 10, "wrong": 0, "late": 0}, {"seen": 10, "repeated": 0, "strange": 0}
    assert wrong(10, *good) == []
    assert wrong(10, good[1], good[1]) == []  # the echo's own count is both
    for asked, answered in (
        ({**good[0], "answered": 9}, good[1]),
        ({**good[0], "wrong": 1}, good[1]),
        ({**good[0], "late": 1}, good[1]),
        (good[0], {**good[1], "seen": 9}),
        (good[0], {**good[1], "repeated": 1}),
        (good[0], {**good[1], "strange": 1}),
    ):
        assert len(wrong(10, asked, answered)) == 1


def test_messages_to_the_echo_are_as_long_as_those_to_the_hub() -> None:
    """Otherwise the two would not be compared by the same work."""
    operation = v1.Operation(id=5, hub_id="0123456789abcdef")
    operation.create.name = "general-purpose-1-5"
    number, answer = V1Words().answer(v1.HubMessage(operation=operation).SerializeToString())
    echoed = EchoWords().question(5, 1)
    assert (number, answer) == (5, echoed)
    assert EchoWords().answer(echoed) == (5, None)


def test_a_lean_driver_of_v0_answers_by_number() -> None:
    params = v0.MCMside.operationParams(machineName="m-1")
    asked = v0.MCMside(operationID=9, operationType="create", operationparams=params)
    number, answer = V0Words().answer(asked.SerializeToString())
    assert number == 9
    assert v0.DriverSide.FromString(answer or b"").createresponse.providerID == "bench:///m-1"


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_quick_run_of_the_dock_reports_dispatch_and_memory() -> None:
    command = [sys.executable, "-m", "bench", "--dock", "--quick", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=200)
    report = json.loads(done.stdout)
    assert [row["driver"] for row in report["dispatch"]] == ["v1", "v0", "runner"]
    for row in report["dispatch"]:
        for ratio in (row["cpu_ratio"], row["wall_ratio"]):
            assert 0 < ratio["lowest"] <= ratio["median"] <= ratio["highest"]
    assert [each["server"] for each in report["memory"]] == ["echo", "v1", "v0"]
    assert all(each["none_kib"] for each in report["memory"])
