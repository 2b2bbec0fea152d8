"""Discovery's benchmark runs, and says what is over its targets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.discovery_heartbeats import Result
from bench.discovery_offers import Search
from bench.discovery_report import DiscoveryPlan, DiscoveryReport

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_over_a_target_is_told() -> None:
    search = Search(strategy="cheapest", kind="first", median=49.9, lowest=1, highest=99)
    beats = Result(agents=1000, heartbeats=100, seconds=1, cpu_seconds=0.2)
    assert DiscoveryReport(plan=DiscoveryPlan(), searches=[search], beats=beats).over_limit == []
    slow = Search(strategy="cheapest", kind="first", median=50, lowest=1, highest=99)
    many = Result(agents=1000, heartbeats=100, seconds=1, cpu_seconds=0.25)
    assert DiscoveryReport(plan=DiscoveryPlan(), searches=[slow], beats=many).over_limit == [
        "a search by cheapest, first: 50.0 ms, target 50",
        "heartbeats take 25% of a core, target 25%",
    ]


@pytest.mark.thorough
def test_it_runs_and_tells_its_figures_as_json() -> None:
    command = [sys.executable, "-m", "bench", "--discovery", "--quick", "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["searches"]) == 4 * 3
    assert told["beats"]["heartbeats"] > 0
