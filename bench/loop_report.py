"""The real autoscaler's main loop with each server: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from bench.loop_measure import LoopPlan, LoopSide
from bench.transport_processes import GO, NATIVE
from e2e.modules import AUTOSCALERS, NEWEST_RELEASE

QUICK_LOOP: Final = LoopPlan(nodes=40, groups=4, rounds=1, loops=3, first_loops=1)

_MOST_MAIN: Final = 0.9  # of the Go server's
_LEAST_HITS: Final = 0.99
_MOST_DIFFERENCE: Final = 0.05  # in calls: else the loops are not comparable


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReport:
    """Everything that one run measured."""

    plan: LoopPlan
    sides: Sequence[LoopSide]

    @property
    def over_limit(self) -> list[str]:
        """Where the native transport misses its targets."""
        native = self.side(NATIVE)
        found = []
        if (ratio := self.ratio(native)) > _MOST_MAIN:
            found.append(f"main loop {ratio:.2f}, target {_MOST_MAIN:g}")
        ours, theirs = (statistics.median(side.calls) for side in (native, self.side(GO)))
        if abs(ours / theirs - 1) > _MOST_DIFFERENCE:
            found.append(f"{ours:,.0f} and {theirs:,.0f} calls a loop: the autoscaler does not do the same with both")
        if native.hits is not None and native.hits < _LEAST_HITS:
            found.append(f"ready replies {native.hits:.2%}, target {_LEAST_HITS:.0%}")
        return found

    def side(self, kind: str) -> LoopSide:
        """The figures of one server."""
        return next(side for side in self.sides if side.kind == kind)

    def ratio(self, side: LoopSide) -> float:
        """The median over the rounds of its loops against the Go server's in the same round."""
        return statistics.median(ours / go for ours, go in zip(side.main, self.side(GO).main, strict=True))


def loop_as_json(report: LoopReport) -> str:
    """All figures. Times are in seconds."""
    figures = {
        **asdict(report),
        "cores": os.cpu_count(),
        "autoscaler": AUTOSCALERS[NEWEST_RELEASE].patch,
        "ratio": {side.kind: report.ratio(side) for side in report.sides},
        "over_limit": report.over_limit,
    }
    return json.dumps(figures, indent=2)


def print_loop_table(report: LoopReport, console: Console) -> None:
    """Prints it; a console that is no terminal writes Markdown."""
    plan = report.plan
    console.print(
        f"autoscaler {AUTOSCALERS[NEWEST_RELEASE].patch}, {plan.nodes:,} nodes in {plan.groups} groups, mTLS, "
        f"{plan.rounds} rounds of {plan.loops} loops, {os.cpu_count()} cores"
    )
    table = Table(
        "server",
        "main loop s",
        "ratio (rounds)",
        "calls a loop",
        "autoscaler's own work",
        "ready replies",
    )
    table.box = table.box if console.is_terminal else box.MARKDOWN
    go = report.side(GO)
    for side in report.sides:
        ratios = [ours / theirs for ours, theirs in zip(side.main, go.main, strict=True)]
        table.add_row(
            side.kind,
            f"{side.seconds:.2f}",
            "" if side is go else f"{report.ratio(side):.2f} ({min(ratios):.2f}..{max(ratios):.2f})",
            f"{statistics.median(side.calls):,.0f}",
            f"{statistics.median(side.own):.2f} s, {statistics.median(side.own) / side.seconds:.0%}",
            "" if side.hits is None else f"{side.hits:.2%}",
        )
    console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")
