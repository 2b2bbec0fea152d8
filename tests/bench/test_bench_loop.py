"""What the measurement of the autoscaler's main loop judges."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from bench.loop_measure import LoopPlan, LoopSide
from bench.loop_report import LoopReport, loop_as_json, print_loop_table
from bench.transport_processes import GO, NATIVE


def report(ours: list[float], *, hits: float = 1.0, calls: float = 5000.0) -> LoopReport:
    go = LoopSide(kind=GO, main=[1.0, 2.0, 4.0], calls=[5000.0] * 3, own=[0.5] * 3)
    native = LoopSide(kind=NATIVE, main=ours, calls=[calls] * 3, own=[0.4] * 3, hits=hits)
    return LoopReport(plan=LoopPlan(), sides=[go, native])


def test_rounds_are_compared_one_by_one_and_the_median_counts() -> None:
    judged = report([0.9, 1.0, 40.0])
    assert judged.ratio(judged.side(NATIVE)) == pytest.approx(0.9)
    assert judged.over_limit == []
    assert report([0.92, 1.84, 3.0]).over_limit == ["main loop 0.92, target 0.9"]


def test_replies_that_python_had_to_make_are_named() -> None:
    assert report([0.5, 1.0, 2.0], hits=0.98).over_limit == ["ready replies 98.00%, target 99%"]


def test_loops_in_which_the_autoscaler_does_other_things_are_not_compared_silently() -> None:
    (told,) = report([0.5, 1.0, 2.0], calls=3000.0).over_limit
    assert told == "3,000 and 5,000 calls a loop: the autoscaler does not do the same with both"


def test_a_program_gets_the_ratios() -> None:
    assert json.loads(loop_as_json(report([0.5, 1.0, 2.0])))["ratio"] == {GO: 1.0, NATIVE: 0.5}


def test_each_figure_of_the_table_stands_in_its_own_column() -> None:
    console = Console(file=io.StringIO(), width=200)
    print_loop_table(report([0.5, 1.0, 2.0]), console)
    assert isinstance(console.file, io.StringIO)
    rows = [line.split("|")[1:-1] for line in console.file.getvalue().splitlines() if line.startswith("|")]
    heads, native = ([cell.strip() for cell in row] for row in (rows[0], rows[-1]))
    shown = dict(zip(heads, native, strict=True))
    assert shown["autoscaler's own work"] == "0.40 s, 40%"
    assert shown["ready replies"] == "100.00%"
