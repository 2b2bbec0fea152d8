"""Discovery's figures as tables for people, and as JSON for programs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.discovery_heartbeats import LIMIT, Result
from bench.discovery_offers import KINDS, SEARCH_LIMIT, Search


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryPlan:
    """How much is measured."""

    clusters: int = 10_000
    rounds: int = 20
    agents: int = 1000
    connections: int = 50
    seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryReport:
    """Everything that one run measured."""

    plan: DiscoveryPlan
    searches: Sequence[Search]
    beats: Result

    @property
    def over_limit(self) -> list[str]:
        """What misses its target."""
        found = [
            f"a search by {one.strategy}, {one.kind}: {one.median:.1f} ms, target {SEARCH_LIMIT:g}"
            for one in self.searches
            if one.median >= SEARCH_LIMIT
        ]
        if self.beats.core >= LIMIT:
            found.append(f"heartbeats take {self.beats.core:.0%} of a core, target {LIMIT:.0%}")
        return found


def discovery_as_json(report: DiscoveryReport) -> str:
    """All figures. Searches are in milliseconds of processor time, as is one heartbeat."""
    beats = {**asdict(report.beats), "core": report.beats.core, "milliseconds": report.beats.milliseconds}
    return json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], **asdict(report), "beats": beats}, indent=2)


def print_discovery_tables(report: DiscoveryReport, console: Console) -> None:
    """Prints them; a console that is no terminal writes Markdown."""
    plan, beats = report.plan, report.beats
    console.print(
        f"{plan.rounds} rounds of searches over {plan.clusters:,} clusters, milliseconds of processor time; "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."
    )
    searches = Table("search, ms of CPU (rounds)", *KINDS)
    for strategy in dict.fromkeys(one.strategy for one in report.searches):
        searches.add_row(strategy, *(_spread(one) for one in report.searches if one.strategy == strategy))
    heard = Table("agents, every 10 s", "heartbeats", "server CPU ms each", "share of a core")
    heard.add_row(f"{beats.agents:,}", f"{beats.heartbeats:,}", f"{beats.milliseconds:.2f}", f"{beats.core:.0%}")
    for table in (searches, heard):
        table.box = table.box if console.is_terminal else box.MARKDOWN
        console.print(table)
    for line in report.over_limit:
        console.print(f"over the limit: {line}", style="red")


def _spread(one: Search) -> str:
    return f"{one.median:.1f} ({one.lowest:.1f}..{one.highest:.1f})"
