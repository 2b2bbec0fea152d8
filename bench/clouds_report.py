"""What was measured of the clouds, as tables for people and as JSON for programs; and the command's part of it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
from rich import box
from rich.console import Console
from rich.table import Table

from bench.clouds_measure import CloudRow, CloudsPlan, EngineCalls, measure_engine, measure_lists, missing
from bench.measure import Spread
from cloudgraft.app import logs

QUICK_CLOUDS: Final = CloudsPlan(
    machines=60, rounds=2, observe_every=0.2, seconds=1.0, grow=12, calls_per_second=100.0, slow=100
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudsReport:
    """Everything that one run measured."""

    plan: CloudsPlan
    lists: Sequence[CloudRow]
    engine: EngineCalls
    missing: Mapping[str, str]

    @property
    def over_limit(self) -> list[str]:
        """What misses its target."""
        found = [
            f"{row.driver}: a list of {row.machines:,} machines is {max(row.requests):,} requests, target {row.allowed}"
            for row in self.lists
            if max(row.requests) > row.allowed
        ]
        return [*found, *self._passes(), *self._calls()]

    def _passes(self) -> list[str]:
        plan, engine = self.plan, self.engine
        most = math.ceil(engine.seconds / plan.observe_every)
        if engine.passes > most:
            return [f"an engine at rest lists {engine.passes} times in {engine.seconds:g} s, target {most}"]
        return []

    def _calls(self) -> list[str]:
        found = []
        for one in self.engine.scale_ups:
            if one.most_under_way > self.plan.max_calls:
                found.append(f"{one.what}: {one.most_under_way} calls at a time, target {self.plan.max_calls}")
            if one.most_in_a_second > self.plan.calls_per_second:
                found.append(
                    f"{one.what}: {one.most_in_a_second} calls in a second, target {self.plan.calls_per_second:g}"
                )
            if one.creates != self.plan.grow:
                found.append(f"{one.what}: {one.creates} creates for {self.plan.grow} machines")
        return found


def run_clouds(plan: CloudsPlan) -> CloudsReport:
    """Measures, without a word in the log."""
    with tempfile.TemporaryDirectory() as place, Path(os.devnull).open("w") as nowhere:
        logs.configure(2, "json", nowhere)
        click.echo(f"lists of {plan.machines:,} machines ...", err=True)
        lists = measure_lists(plan, Path(place))
        click.echo(f"an engine with {plan.machines:,} machines ...", err=True)
        engine = asyncio.run(measure_engine(plan, Path(place)))
    return CloudsReport(plan=plan, lists=lists, engine=engine, missing=missing())


def clouds_as_json(report: CloudsReport) -> str:
    """All figures, for a program. Times are milliseconds, but for those of the engine, which are seconds."""
    return json.dumps({"cores": os.cpu_count(), **asdict(report), "overLimit": report.over_limit}, indent=2)


def print_clouds_tables(report: CloudsReport, console: Console) -> None:
    """Prints them; a console that is no terminal writes Markdown."""
    plan = report.plan
    console.print(
        f"{plan.rounds} rounds of one list of {plan.machines:,} machines for each cloud, {os.cpu_count()} cores; an "
        f"engine with observeEvery {plan.observe_every:g} s, maxCalls {plan.max_calls} and callsPerSecond "
        f"{plan.calls_per_second:g}."
    )
    for table in (_lists(report.lists), _rest(report.engine), _scale_ups(report.engine)):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for name, why in report.missing.items():
        console.print(f"not measured: {name}, {why}")
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")


def _lists(rows: Sequence[CloudRow]) -> Table:
    titles = ("driver", "requests per pass", "machines per request", "CPU ms per 1,000 machines", "ratio (rounds)")
    table = Table(*titles, "wall ms per pass", "ratio (rounds)", "longest stall ms (rounds)")
    for row in rows:
        table.add_row(
            row.driver,
            f"{max(row.requests):,}",
            f"{row.machines / max(row.requests):,.0f}",
            f"{row.cpu_millis:.1f}",
            _spread(row.cpu_ratio),
            f"{row.wall_millis:,.0f}",
            _spread(row.wall_ratio),
            _spread(row.stall_millis),
        )
    return table


def _rest(engine: EngineCalls) -> Table:
    table = Table("engine at rest, s", "passes", "requests", "shortest s from pass to pass")
    table.add_row(f"{engine.seconds:g}", str(engine.passes), str(engine.requests), f"{engine.shortest_pause:.2f}")
    return table


def _scale_ups(engine: EngineCalls) -> Table:
    titles = ("scale-up", "creates", "most at a time", "most in a second", "seconds", "passes meanwhile")
    table = Table(*titles, "shortest s from pass to pass")
    for one in engine.scale_ups:
        counts = (one.creates, one.most_under_way, one.most_in_a_second)
        table.add_row(one.what, *map(str, counts), f"{one.seconds:.1f}", str(one.passes), f"{one.shortest_pause:.2f}")
    return table


def _spread(spread: Spread) -> str:
    return f"{spread.median:.1f} ({spread.lowest:.1f}..{spread.highest:.1f})"
