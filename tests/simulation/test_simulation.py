"""Some virtual hours in every run of the tests; days, and the commands of a failure, in the thorough ones.

Each runs in a process of its own: the order of sets must be the same in all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO

import pytest

from tests.simulation.progress import Progress

SEEDS = range(1, 31)
REPLICAS = range(1, 9)
_DIGEST = re.compile(r"digest ([0-9a-f]{64})")


def simulate(*arguments: str, warnings: str = "ignore") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONWARNINGS": warnings}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_some_hours_of_trouble_break_no_invariant() -> None:
    code, output = simulate("--seed", "20", "--hours", "8")
    assert code == 0, output


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_one_seed_gives_one_run_in_two_processes() -> None:
    runs = [simulate("--seed", "6", "--hours", "6")[1] for _ in range(2)]
    found = [_DIGEST.findall(output) for output in runs]
    assert found[0], runs[0]
    assert found[0] == found[1]


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_failure_is_shrunk_and_replayed_by_its_command() -> None:
    plan = "500:crash:3,20;1000:creates-rate:west,60,1,0;3000:machine-rebooted:east,1;4000:foreigners:west,1"
    code, output = simulate("--seed", "6", "--hours", "5", "--planted", "repair-at-once", "--plan", plan)
    assert code == 1, output
    command = output.strip().splitlines()[-1]
    assert "shrunk from 4 steps to 1" in output
    replayed = re.search(r"--plan='(.*)'", command)
    assert replayed is not None, command
    assert replayed[1] == "3000:machine-rebooted:east,1"
    code, again = simulate(
        "--seed", "6", "--hours", "5", "--planted", "repair-at-once", "--no-shrink", "--plan", replayed[1]
    )
    assert code == 1
    assert "deleted-without-reason" in again


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_processes_that_were_killed_leave_nothing_to_complain_about() -> None:
    plan = ";".join(f"{40 + 37 * number}:crash:{number % 40},5" for number in range(60))
    code, output = simulate("--seed", "6", "--hours", "5", "--plan", plan, warnings="always")
    assert (code, len(output.splitlines())) == (0, 3), output


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sweep_shows_on_a_terminal_how_far_it_is_and_in_a_pipe_nothing() -> None:
    times = iter((0.0, 30.0, 30.0, 60.0, 60.0))
    terminal, pipe = Terminal(), StringIO()
    progress = Progress(10, terminal, clock=lambda: next(times))
    progress.step(has_failed=False)
    progress.step(has_failed=True)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1:] == [
        "1 of 10 runs, 0 failures, 2.0 per minute, 4 min left",
        "2 of 10 runs, 1 failure, 2.0 per minute, 4 min left",
    ]
    Progress(10, pipe).step(has_failed=True)
    assert pipe.getvalue() == ""


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", REPLICAS)
def test_half_a_day_of_two_replicas_breaks_no_invariant(seed: int) -> None:
    code, output = simulate("--seed", str(seed), "--hours", "12", "--replicas", "2")
    assert code == 0, output


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_day_of_trouble_breaks_no_invariant(seed: int) -> None:
    code, output = simulate("--seed", str(seed))
    assert code == 0, output
