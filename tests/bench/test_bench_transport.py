"""The comparison with the Go server: what it judges, and that a quick run reports every scenario."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bench.measure import Side, Spread
from bench.transport_measure import Setting, TransportPlan, TransportRow
from bench.transport_processes import GO, GRPCIO, NATIVE, find_programs
from bench.transport_report import TransportReport
from e2e.modules import AUTOSCALER_MODULE, AUTOSCALERS, NEWEST_RELEASE
from tests.needs import needs_native

ROOT = Path(__file__).resolve().parents[2]


def same(ratio: float) -> Spread:
    return Spread(ratio, ratio, ratio)


GOOD = TransportRow(
    kind=NATIVE,
    mtls=True,
    busy=False,
    rpc="NodeGroupForNode",
    callers=8,
    side=Side(p50_micros=100.0, p99_micros=200.0, calls_per_second=10_000.0, cpu_micros_per_call=20.0),
    p50_ratio=same(0.75),
    p99_ratio=same(0.9),
    throughput_ratio=same(1.4),
    cpu_ratio=0.6,
    best_p50_ratio=0.7,
    best_p99_ratio=0.7,
    best_throughput_ratio=1.5,
)


def report(
    rows: Sequence[TransportRow], *, native_kib: int = 100_000, nodes: int = 5000, failed: int = 0
) -> TransportReport:
    setting = Setting(
        mtls=True,
        busy=False,
        rows=rows,
        resident_kib={NATIVE: native_kib, GRPCIO: 900_000},
        hits=1.0,
        errors={GO: 3, NATIVE: failed},
        created_per_second=0.0,
        deleted_per_second=0.0,
        load_average=0.1,
    )
    return TransportReport(plan=TransportPlan(nodes=nodes), settings=[setting])


def test_the_targets_themselves_are_met() -> None:
    assert report([GOOD]).over_limit == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (replace(GOOD, p50_ratio=same(0.76)), "p50 0.76"),
        (replace(GOOD, p99_ratio=same(0.91)), "p99 0.91"),
        (replace(GOOD, throughput_ratio=same(1.39)), "calls/s 1.39"),
        (replace(GOOD, cpu_ratio=0.61), "CPU per call 0.61"),
    ],
)
def test_each_missed_target_is_named_for_the_native_transport_alone(bad: TransportRow, word: str) -> None:
    (line,) = report([bad]).over_limit
    assert line.startswith(f"mTLS, idle, NodeGroupForNode, 8 at a time: {word}, target ")
    assert report([replace(bad, kind=GRPCIO), replace(bad, kind=GO)]).over_limit == []


def test_one_caller_has_no_throughput_to_reach_and_a_busy_engine_may_use_the_processor() -> None:
    assert report([replace(GOOD, callers=1, throughput_ratio=same(1.0))]).over_limit == []
    assert report([replace(GOOD, busy=True, cpu_ratio=3.0)]).over_limit == []


def test_a_call_that_fails_is_named() -> None:
    assert report([], failed=2).over_limit == ["mTLS, idle: 2 calls failed"]


def test_memory_is_judged_up_to_5000_machines() -> None:
    assert report([], native_kib=200_000).over_limit == ["mTLS, idle: 205 MB, target below 200"]
    assert report([], native_kib=200_000, nodes=5001).over_limit == []


def test_the_go_server_is_of_the_newest_release() -> None:
    go_mod = (ROOT / "bench" / "go_peer" / "go.mod").read_text("utf-8")
    assert f"\t{AUTOSCALER_MODULE} {AUTOSCALERS[NEWEST_RELEASE].version}\n" in go_mod


@needs_native
@pytest.mark.thorough  # no part of the product hangs on it
@pytest.mark.timeout(300)
@pytest.mark.skipif(find_programs() is None, reason="not built yet, which takes minutes: make bench does it")
def test_a_quick_run_reports_all_servers_in_every_scenario() -> None:
    command = [sys.executable, "-m", "bench", "--transport", "--quick", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=290)
    told = json.loads(done.stdout)
    assert [(setting["mtls"], setting["busy"]) for setting in told["settings"]] == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    for setting in told["settings"]:
        assert {(row["kind"], row["rpc"], row["callers"]) for row in setting["rows"]} == {
            (kind, rpc, callers)
            for kind in (GO, NATIVE, GRPCIO)
            for rpc in ("NodeGroupForNode", "NodeGroupGetOptions")
            for callers in (1, 8)
        }
        assert 0 < setting["hits"] <= 1
        assert setting["busy"] == (setting["created_per_second"] > 0)
