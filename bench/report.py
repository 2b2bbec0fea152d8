"""The figures as a table for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.in_process import Steps
from bench.measure import Memory, Row, Side

LIMIT = 1.25  # what the service may add to the bare server's p50


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that one run measured."""

    rounds: int
    calls: int
    client: str
    mtls: bool
    scenarios: Sequence[Row]
    memory: Sequence[Memory]
    in_process: Sequence[Steps]

    @property
    def over_limit(self) -> list[str]:
        """The scenarios in which the service adds more than it may."""
        return [
            f"{row.rpc}, {row.nodes:,} nodes, {row.callers} at a time: {row.p50_ratio.median:.2f}"
            for row in self.scenarios
            if row.p50_ratio.median > LIMIT
        ]


def as_json(report: Report) -> str:
    """All figures. Times are in microseconds, memory in KiB."""
    figures = {**asdict(report), "cores": os.cpu_count(), "limit": LIMIT, "over_limit": report.over_limit}
    return json.dumps(figures, indent=2)


def print_tables(report: Report, console: Console) -> None:
    """All figures; a pair of them is always bare / cloudgraft. Into a pipe or a file it writes Markdown."""
    transport = "mTLS" if report.mtls else "plain text"
    console.print(
        f"{report.rounds} rounds of {report.calls} calls per server and scenario, {transport}, "
        f"{report.client} client, {os.cpu_count()} cores; pairs are bare / cloudgraft"
    )
    for table in (_calls_table(report.scenarios), _memory_table(report.memory), _steps_table(report.in_process)):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit of {LIMIT}: {line}", style="red")


def _calls_table(rows: Sequence[Row]) -> Table:
    table = Table(
        "call", "nodes", "at a time", "p50 µs", "ratio (rounds)", "p99 µs", "ratio", "calls/s", "server CPU µs"
    )
    for row in rows:
        spread = row.p50_ratio
        table.add_row(
            row.rpc,
            f"{row.nodes:,}",
            str(row.callers),
            _pair(row, lambda side: side.p50_micros),
            f"{spread.median:.2f} ({spread.lowest:.2f}..{spread.highest:.2f})",
            _pair(row, lambda side: side.p99_micros),
            f"{row.p99_ratio:.2f}",
            _pair(row, lambda side: side.calls_per_second),
            _pair(row, lambda side: side.cpu_micros_per_call),
        )
    return table


def _memory_table(rows: Sequence[Memory]) -> Table:
    table = Table("memory (RSS)", "bare MiB", "cloudgraft MiB", "ratio")
    for row in rows:
        sizes = [_or_unknown(None if kib is None else kib / 1024) for kib in (row.bare_kib, row.cloudgraft_kib)]
        table.add_row(f"{row.nodes:,} nodes", *sizes, "?" if row.ratio is None else f"{row.ratio:.2f}")
    return table


def _steps_table(rows: Sequence[Steps]) -> Table:
    table = Table("in process, µs per call", "nodes", "decode", "handle", "of it provider", "encode")
    for row in rows:
        steps = (row.decode, row.handle, row.provider, row.encode)
        table.add_row(row.rpc, f"{row.nodes:,}", *(f"{micros:.1f}" for micros in steps))
    return table


def _pair(row: Row, figure: Callable[[Side], float | None]) -> str:
    return f"{_or_unknown(figure(row.bare))} / {_or_unknown(figure(row.cloudgraft))}"


def _or_unknown(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
