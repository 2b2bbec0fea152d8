"""The dock's figures as tables for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.dock_measure import DockMemory, DockPlan, DockRow
from bench.measure import Spread

_RATIO = 2.0  # what an operation may cost, with a lean client, to what the echo costs
_BYTES = 200_000  # of an idle driver
_NAMES = {"v1": "lean, v1", "v0": "lean, v0", "runner": "our runner, v1"}
_SERVERS = {"echo": "bare echo", "v1": "hub, v1", "v0": "hub, v0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DockReport:
    """Everything that one run measured."""

    plan: DockPlan
    dispatch: Sequence[DockRow]
    memory: Sequence[DockMemory]

    @property
    def over_limit(self) -> list[str]:
        """What misses its target."""
        lean = [row for row in self.dispatch if row.driver != "runner"]
        found = [
            f"{_NAMES[row.driver]}: {what} ratio {ratio.median:.2f}, target {_RATIO:g}"
            for row in lean
            for what, ratio in (("CPU", row.cpu_ratio), ("wall", row.wall_ratio))
            if ratio.median >= _RATIO
        ]
        found += [
            f"an idle driver of {each.server} takes {each.per_driver / 1000:.0f} kB, target {_BYTES // 1000}"
            for each in self.memory
            if each.server != "echo" and each.per_driver >= _BYTES
        ]
        return found


def dock_as_json(report: DockReport) -> str:
    """All figures. Times are in microseconds per operation, memory in KiB, that of one driver in bytes."""
    memory = [{**asdict(each), "per_driver": each.per_driver} for each in report.memory]
    return json.dumps({"cores": os.cpu_count(), **asdict(report), "memory": memory}, indent=2)


def print_dock_tables(report: DockReport, console: Console) -> None:
    """Prints them; a console that is no terminal writes Markdown."""
    plan = report.plan
    console.print(
        f"{plan.rounds} rounds of {plan.drivers * plan.operations:,} operations, {plan.drivers} drivers with "
        f"{plan.in_flight} in flight each, {os.cpu_count()} cores; pairs are bare echo / hub, microseconds per "
        "operation. Every operation was answered once."
    )
    for table in (_dispatch(report.dispatch), _memory(report.memory)):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")


def _dispatch(rows: Sequence[DockRow]) -> Table:
    table = Table("driver", "server CPU µs", "ratio (rounds)", "wall µs", "ratio (rounds)", "driver CPU µs", "ratio")
    for row in rows:
        table.add_row(
            _NAMES[row.driver],
            f"{row.bare.server_cpu:.0f} / {row.hub.server_cpu:.0f}",
            _spread(row.cpu_ratio),
            f"{row.bare.wall:.0f} / {row.hub.wall:.0f}",
            _spread(row.wall_ratio),
            f"{row.bare.client_cpu:.0f} / {row.hub.client_cpu:.0f}",
            f"{row.client_ratio.median:.2f}",
        )
    return table


def _memory(rows: Sequence[DockMemory]) -> Table:
    table = Table("memory (RSS)", "without drivers MiB", "with idle drivers MiB", "drivers", "kB per driver")
    for each in rows:
        sizes = (f"{kib / 1024:.1f}" for kib in (each.none_kib, each.all_kib))
        table.add_row(_SERVERS[each.server], *sizes, str(each.drivers), f"{each.per_driver / 1000:.0f}")
    return table


def _spread(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.lowest:.2f}..{spread.highest:.2f})"
