"""The engine's figures as tables for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.engine_measure import Work
from bench.engine_starts import Orders, Start
from bench.measure import Spread

_RATIO = 1.1  # what work may add to the p50 of a call
_STALL = 10.0  # milliseconds
_RESIDENT = 300.0  # MB
_READY = 3.0  # seconds, with 5,000 machines


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """Everything that one run measured."""

    work: Work
    starts: Sequence[Start]
    orders: Orders

    @property
    def over_limit(self) -> list[str]:
        """What misses its target."""
        work = self.work
        found = [
            f"{read.rpc}: p50 ratio {read.p50_ratio.median:.2f}, target {_RATIO}"
            for read in work.reads
            if read.p50_ratio.median > _RATIO
        ]
        stall = work.stalls.busy_own.median
        if stall > _STALL:
            found.append(f"the busy engine held its event loop up for {stall:.1f} ms, target {_STALL:g}")
        if work.resident_kib is not None and work.resident_kib * 1024 / 1e6 > _RESIDENT:
            found.append(f"the busy engine has {work.resident_kib * 1024 / 1e6:.0f} MB, target {_RESIDENT:g}")
        found += [
            f"ready after {start.seconds:.1f} s with {start.machines:,} machines, target {_READY:g}"
            for start in self.starts
            if start.machines <= work.machines and start.seconds > _READY
        ]
        if self.orders.many_transactions != 1:
            found.append(f"IncreaseSize(+{self.orders.many}) made {self.orders.many_transactions:g} transactions")
        return found


def engine_as_json(report: EngineReport) -> str:
    """All figures. Times are in microseconds, stalls in milliseconds, memory in KiB."""
    return json.dumps({"cores": os.cpu_count(), **asdict(report)}, indent=2)


def print_engine_tables(report: EngineReport, console: Console) -> None:
    """Prints them; a console that is no terminal writes Markdown."""
    work = report.work
    console.print(
        f"{work.machines:,} machines in {work.groups} groups, {os.cpu_count()} cores; pairs are idle / busy. In "
        f"{work.seconds:.0f} s the busy engine made per second {work.lists_per_second:.1f} lists, "
        f"{work.creates_per_second:.0f} creations, {work.deletes_per_second:.0f} deletions and "
        f"{work.transactions_per_second:.0f} transactions"
    )
    for table in (_reads(work), _holds(work), _starts(report.starts), _orders(report.orders)):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")


def _reads(work: Work) -> Table:
    table = Table("call", "p50 µs", "ratio (rounds)", "p99 µs")
    for read in work.reads:
        spread = read.p50_ratio
        table.add_row(
            read.rpc,
            f"{read.idle_p50_micros:,.0f} / {read.busy_p50_micros:,.0f}",
            f"{spread.median:.2f} ({spread.lowest:.2f}..{spread.highest:.2f})",
            f"{read.idle_p99_micros:,.0f} / {read.busy_p99_micros:,.0f}",
        )
    return table


def _holds(work: Work) -> Table:
    stalls, kib = work.stalls, work.resident_kib
    table = Table("longest stall of the event loop, ms (processes)", "idle", "busy")
    table.add_row("of it the process itself was at work", _spread(stalls.idle_own), _spread(stalls.busy_own))
    table.add_row("by the clock, whoever had the processor", _spread(stalls.idle), _spread(stalls.busy))
    table.add_row("memory (RSS), MB", "", "?" if kib is None else f"{kib * 1024 / 1e6:.0f}")
    return table


def _spread(spread: Spread) -> str:
    return f"{spread.median:.1f} ({spread.lowest:.1f}..{spread.highest:.1f})"


def _starts(starts: Sequence[Start]) -> Table:
    table = Table("machines", "events", "journal MiB", "ready s", "µs per machine", "ratio", "with Python s", "RSS MB")
    for start in starts:
        kib = start.resident_kib
        table.add_row(
            f"{start.machines:,}",
            f"{start.events:,}",
            f"{start.journal_mib:.1f}",
            f"{start.seconds:.2f}",
            f"{start.micros_per_machine:.0f}",
            f"{start.micros_per_machine / starts[len(starts) // 2].micros_per_machine:.2f}",
            f"{start.process_seconds:.2f}",
            "?" if kib is None else f"{kib * 1024 / 1e6:.0f}",
        )
    return table


def _orders(orders: Orders) -> Table:
    table = Table("IncreaseSize", "p50 µs", "transactions per call", "ratio")
    table.add_row("+1", f"{orders.one_p50_micros:,.0f}", f"{orders.one_transactions:g}", "")
    many = f"{orders.many_p50_micros:,.0f}"
    table.add_row(f"+{orders.many}", many, f"{orders.many_transactions:g}", f"{orders.p50_ratio:.2f}")
    return table
