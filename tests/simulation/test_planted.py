"""Each planted fault is found by its recorded run; without the fault, the same run breaks no invariant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.invariants import INVARIANTS
from tests.simulation.plan import KINDS
from tests.simulation.planted import FAULTS, Planted, table
from tests.simulation.runner import REGISTERED
from tests.simulation.test_simulation import simulate


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_planted_fault_is_found_by_its_recorded_run(fault: Planted) -> None:
    run = ["--seed", str(fault.seed), "--hours", f"{fault.hours:g}", "--no-shrink", f"--plan={fault.plan}"]
    run += ["--replicas", str(fault.replicas)]
    code, output = simulate(*run, "--planted", fault.name)
    assert code == 1, output
    assert f"\n{fault.finds}: " in output
    code, output = simulate(*run)
    assert code == 0, output


def test_the_page_lists_every_planted_fault_with_its_run() -> None:
    page = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    assert table() in page, "print tests.simulation.planted.table() and put it there"


def test_the_page_lists_every_kind_of_step_and_every_invariant() -> None:
    page = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = set(page.splitlines())
    assert REGISTERED, "it fills the table of kinds"
    assert not [row for name, what in INVARIANTS.items() if (row := f"| `{name}` | {what} |") not in rows]
    assert not [name for name in KINDS if f"\n| `{name}` | " not in page]
