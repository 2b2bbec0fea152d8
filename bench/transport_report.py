"""The transports' figures against the Go server's as tables for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from bench.transport_measure import Setting, TransportPlan, TransportRow
from bench.transport_processes import GO, NATIVE

QUICK_TRANSPORT: Final = TransportPlan(nodes=40, groups=4, rounds=2, calls=20, rounds_per_process=2, churn=20)

# What the native transport is to be, as a ratio to the Go server.
_MOST_P50: Final = 0.75
_MOST_P99: Final = 0.9
_LEAST_THROUGHPUT: Final = 1.4  # of eight callers
_MOST_CPU: Final = 0.6  # of a server whose engine is idle: the Go server has no engine that could be at work
_MOST_RESIDENT: Final = 200.0  # MB, with 5,000 machines


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportReport:
    """Everything that one run measured."""

    plan: TransportPlan
    settings: Sequence[Setting]

    @property
    def over_limit(self) -> list[str]:
        """Where the native transport misses its targets."""
        found = [miss for setting in self.settings for row in setting.rows for miss in _misses(row)]
        for setting in self.settings:
            if failed := setting.errors.get(NATIVE, 0):
                found.append(f"{_name(setting)}: {failed} calls failed")
            kib = setting.resident_kib.get(NATIVE, 0)
            if self.plan.nodes <= 5000 and _megabytes(kib) >= _MOST_RESIDENT:
                found.append(f"{_name(setting)}: {_megabytes(kib):.0f} MB, target below {_MOST_RESIDENT:g}")
        return found


def _misses(row: TransportRow) -> list[str]:
    if row.kind != NATIVE:
        return []
    judged = [
        ("p50", row.p50_ratio.median, row.p50_ratio.median <= _MOST_P50, _MOST_P50),
        ("p99", row.p99_ratio.median, row.p99_ratio.median <= _MOST_P99, _MOST_P99),
    ]
    if row.callers > 1:
        calls = row.throughput_ratio.median
        judged.append(("calls/s", calls, calls >= _LEAST_THROUGHPUT, _LEAST_THROUGHPUT))
    if not row.busy and row.cpu_ratio is not None:
        judged.append(("CPU per call", row.cpu_ratio, row.cpu_ratio <= _MOST_CPU, _MOST_CPU))
    where = f"{_name(row)}, {row.rpc}, {row.callers} at a time"
    return [f"{where}: {what} {ratio:.2f}, target {target:g}" for what, ratio, is_met, target in judged if not is_met]


def transport_as_json(report: TransportReport) -> str:
    """All figures. Times are in microseconds, memory in KiB."""
    figures = {**asdict(report), "cores": os.cpu_count(), "over_limit": report.over_limit}
    return json.dumps(figures, indent=2)


def print_transport_tables(report: TransportReport, console: Console) -> None:
    """Prints them; a console that is no terminal writes Markdown."""
    plan = report.plan
    console.print(
        f"{plan.nodes:,} machines in {plan.groups} groups, {plan.rounds} rounds of {plan.calls:,} calls per server and "
        f"scenario, grpc-go client, {os.cpu_count()} cores; ratios are to the Go server, best those of the best rounds"
    )
    for table in (*(_calls(setting) for setting in report.settings), _whole(report.settings, plan.kinds)):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")


def _calls(setting: Setting) -> Table:
    figures = (
        "p50 µs",
        "ratio",
        "best",
        "p99 µs",
        "ratio",
        "best",
        "calls/s",
        "ratio",
        "best",
        "server CPU µs",
        "ratio",
    )
    table = Table(_name(setting), "at a time", "server", *figures)
    for row in setting.rows:
        side, is_go, cpu = row.side, row.kind == GO, row.side.cpu_micros_per_call
        ratios = (
            (f"{side.p50_micros:,.0f}", row.p50_ratio.median, row.best_p50_ratio),
            (f"{side.p99_micros:,.0f}", row.p99_ratio.median, row.best_p99_ratio),
            (f"{side.calls_per_second:,.0f}", row.throughput_ratio.median, row.best_throughput_ratio),
            ("?" if cpu is None else f"{cpu:,.0f}", row.cpu_ratio),
        )
        cells = [
            cell
            for figure, *known in ratios
            for cell in (figure, *("" if is_go or ratio is None else f"{ratio:.2f}" for ratio in known))
        ]
        table.add_row(row.rpc, str(row.callers), row.kind, *cells)
    return table


def _whole(settings: Sequence[Setting], kinds: Sequence[str]) -> Table:
    table = Table(
        "setting",
        *(f"{kind} RSS MB" for kind in kinds),
        "failed calls",
        "ready replies",
        "created / deleted per s",
        "load average",
    )
    for setting in settings:
        table.add_row(
            _name(setting),
            *(f"{_megabytes(setting.resident_kib.get(kind, 0)):.0f}" for kind in kinds),
            " / ".join(str(setting.errors.get(kind, 0)) for kind in kinds),
            "?" if setting.hits is None else f"{setting.hits:.2%}",
            f"{setting.created_per_second:.0f} / {setting.deleted_per_second:.0f}" if setting.busy else "",
            f"{setting.load_average:.1f}",
        )
    return table


def _name(of: Setting | TransportRow) -> str:
    return f"{'mTLS' if of.mtls else 'plaintext'}, {'busy' if of.busy else 'idle'}"


def _megabytes(kib: int) -> float:
    return kib * 1024 / 1e6
