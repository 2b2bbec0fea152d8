"""What the tests and the demo print is read rightly: a run that went wrong never counts as passed."""

from __future__ import annotations

import pytest

from tests.pythons.outcome import demo_fault, figures, skips

PRINTED = """\
........................................................................ [ 99%]
...s.                                                                    [100%]
=========================== short test summary info ============================
SKIPPED [1] tests/admin/test_admin_access.py:78: only root can become another user
4321 passed, 1 skipped, 3 warnings in 251.04s (0:04:11)
"""


def test_counts_and_seconds_are_those_of_the_last_line() -> None:
    read = figures(f"1 passed in 0.10s\n{PRINTED}")
    assert read is not None
    assert read.is_passed
    assert (read.counts, read.seconds) == ({"passed": 4321, "skipped": 1, "warnings": 3}, 251.04)
    assert str(read) == "4321 passed, 1 skipped, 3 warnings in 251 s"


def test_reasons_of_skipped_tests_are_kept() -> None:
    assert skips(PRINTED) == ["SKIPPED [1] tests/admin/test_admin_access.py:78: only root can become another user"]


@pytest.mark.parametrize(
    "last",
    [
        "1 failed, 4321 passed in 251.04s (0:04:11)",
        "4321 passed, 1 error in 251.04s (0:04:11)",
        "4321 passed, 1 xfailed in 251.04s (0:04:11)",
        "3 skipped in 1.00s",
    ],
)
def test_failures_errors_and_empty_runs_are_not_passed(last: str) -> None:
    read = figures(f"{PRINTED}{last}\n")
    assert read is not None
    assert not read.is_passed


@pytest.mark.parametrize("printed", ["", "make: *** [Makefile:87: .venv/bin/python] Error 1", "no tests ran in 0.01s"])
def test_a_run_that_never_came_to_its_end_has_no_figures(printed: str) -> None:
    assert figures(printed) is None


def test_a_demo_without_its_verdict_is_a_fault() -> None:
    assert demo_fault("machines after the crash: 5, lost 0, doubled 0") == ""
    assert demo_fault("machines after the crash: 5, lost 1, doubled 0")
