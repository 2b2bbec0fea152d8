"""The clouds' benchmark runs, and says what is over its targets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.clouds_measure import CloudRow, CloudsPlan, EngineCalls, ScaleUp
from bench.clouds_report import CloudsReport
from bench.measure import Spread
from bench.watched_cloud import most_in_a_second

ROOT = Path(__file__).resolve().parents[2]
ONE = Spread(1.0, 1.0, 1.0)
SCALE_UP = ScaleUp(
    what="quick", creates=200, most_under_way=8, most_in_a_second=20, passes=50, shortest_pause=0.2, seconds=12.0
)


def row(requests: Sequence[int]) -> CloudRow:
    return CloudRow(
        driver="acme",
        machines=5000,
        page=1000,
        requests=requests,
        cpu_millis=1.0,
        cpu_ratio=ONE,
        wall_millis=1.0,
        wall_ratio=ONE,
        stall_millis=ONE,
    )


def report(requests: Sequence[int], passes: int, scale_up: ScaleUp) -> CloudsReport:
    engine = EngineCalls(
        machines=5000, seconds=20.0, passes=passes, requests=passes * 20, shortest_pause=1.0, scale_ups=[scale_up]
    )
    return CloudsReport(plan=CloudsPlan(), lists=[row(requests)], engine=engine, missing={})


def test_a_pass_of_all_pages_once_per_period_within_the_limits_is_fine() -> None:
    assert report([6, 7], 20, SCALE_UP).over_limit == []


def test_what_is_over_a_target_is_told() -> None:
    greedy = replace(SCALE_UP, most_under_way=9, most_in_a_second=21, creates=201)
    assert report([6, 5001], 21, greedy).over_limit == [
        "acme: a list of 5,000 machines is 5,001 requests, target 7",
        "an engine at rest lists 21 times in 20 s, target 20",
        "quick: 9 calls at a time, target 8",
        "quick: 21 calls in a second, target 20",
        "quick: 201 creates for 200 machines",
    ]


def test_the_most_within_any_second_is_counted() -> None:
    assert most_in_a_second([]) == 0
    assert most_in_a_second([0.0, 0.9, 1.0, 1.5, 1.8, 3.0]) == 4  # from 0.9 to 1.8
    assert most_in_a_second([number * 0.05 for number in range(100)]) in (20, 21)  # by how 0.05 is rounded


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_quick_run_of_the_clouds_reports_lists_and_calls() -> None:
    command = [sys.executable, "-m", "bench", "--clouds", "--quick", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    measured = {one["driver"] for one in told["lists"]}
    assert measured | set(told["missing"]) == {"simulated", "hetzner", "openstack", "proxmox", "ec2", "libvirt"}
    # These are no matter of speed: a pass is its pages, and limits are kept.
    assert told["overLimit"] == []
    assert [one["creates"] for one in told["engine"]["scale_ups"]] == [12, 12]
