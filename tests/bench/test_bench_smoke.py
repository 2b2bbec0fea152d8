"""The benchmark runs and reports every scenario. How fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough  # no part of the product hangs on it

ROOT = Path(__file__).resolve().parents[2]
SIDE = {"p50_micros", "p99_micros", "calls_per_second", "cpu_micros_per_call"}


def run(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench", "--quick", "-o", "json", *options]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=55)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("options", [(), ("--client", "raw", "--mtls")], ids=["grpc", "raw over mTLS"])
def test_a_quick_run_reports_both_servers_in_every_scenario(options: tuple[str, ...]) -> None:
    report = run(*options)

    assert report["mtls"] is ("--mtls" in options)
    assert {(row["rpc"], row["nodes"], row["callers"]) for row in report["scenarios"]} == {
        (rpc, nodes, callers)
        for rpc in ("NodeGroupForNode", "NodeGroupGetOptions")
        for nodes in (1000, 5000)
        for callers in (1, 8)
    }
    for row in report["scenarios"]:
        assert set(row["bare"]) == set(row["cloudgraft"]) == SIDE
        assert 0 < row["bare"]["p50_micros"] <= row["bare"]["p99_micros"]
        assert row["p50_ratio"]["lowest"] <= row["p50_ratio"]["median"] <= row["p50_ratio"]["highest"]
    assert [memory["nodes"] for memory in report["memory"]] == [1000, 5000]
    assert {(steps["rpc"], steps["nodes"]) for steps in report["in_process"]} == {
        (row["rpc"], row["nodes"]) for row in report["scenarios"]
    }


def test_a_quick_run_of_the_engine_reports_work_starts_and_orders() -> None:
    report = run("--engine")

    work = report["work"]
    assert [read["rpc"] for read in work["reads"]] == [
        "NodeGroupForNode",
        "NodeGroupTargetSize",
        "NodeGroupGetOptions",
        "NodeGroupNodes",
    ]
    for read in work["reads"]:
        assert 0 < read["idle_p50_micros"] <= read["idle_p99_micros"]
        assert 0 < read["busy_p50_micros"] <= read["busy_p99_micros"]
    assert 0 < work["stalls"]["busy_own"]["median"] <= work["stalls"]["busy"]["median"]
    assert [(start["machines"], start["events"]) for start in report["starts"]] == [(20, 400), (50, 1000)]
    # This one is no matter of speed: an order is one transaction, however many machines are in it.
    assert (report["orders"]["one_transactions"], report["orders"]["many_transactions"]) == (1, 1)
