"""Every alert in a real Prometheus that scrapes real servers with faults, and every query of the dashboard.

Run by `make test-alerts`. Exit code 0 when each alert fired in the run with its fault, no alert fired for the healthy
server, and each query of the dashboard returned data; 1 when not; 3 when Prometheus is not installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from tests.alerts.faults import SCENARIOS, Scenario, Stage
from tests.alerts.prometheus import Prometheus, is_installed
from tests.alerts.rules import alerts, minutes_as_seconds, queries
from tests.conditions import until

NOT_RUN: Final = 3
_PATIENCE: Final = 180.0  # seconds
_PAUSE: Final = 0.5  # between two questions to Prometheus
_ABSENT: Final = "CloudgraftAbsent"  # fires for each server that is gone, so it has no scenario


@dataclass
class Outcome:
    """What was seen in one run."""

    fired: set[tuple[str, str]] = field(default_factory=set)  # job and alert
    without_data: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    async def look(self, prometheus: Prometheus) -> None:
        """Notes the alerts that fire now."""
        for alert in await prometheus.firing():
            job, name = alert["labels"].get("job", ""), alert["labels"]["alertname"]
            if (job, name) not in self.fired:
                self.fired.add((job, name))
                click.echo(f"  {name:32} {alert['annotations']['summary']}  ({job or 'all'})")
            if "<error" in str(alert["annotations"]):
                self.wrong.append(f"an annotation of {name} cannot be rendered: {alert['annotations']}")


async def run(directory: Path) -> Outcome:
    """Starts all servers and Prometheus, begins the faults, and waits for the alerts."""
    outcome = Outcome()
    async with contextlib.AsyncExitStack() as servers, contextlib.AsyncExitStack() as outer:
        stages: dict[str, Stage] = {}
        for scenario in SCENARIOS:
            place = directory / scenario.name
            place.mkdir()
            stages[scenario.name] = await servers.enter_async_context(scenario.run(place))
        targets = {name: stage.ops for name, stage in stages.items()}
        started = Prometheus.started(directory, minutes_as_seconds(), targets)
        prometheus = await outer.enter_async_context(started)
        await _scraped(prometheus, list(targets))
        await asyncio.gather(*(stage.strike() for stage in stages.values()))
        await _wait(outcome, prometheus, SCENARIOS)
        for query in queries():
            found = await prometheus.query(query.with_range(60))
            if all(series["value"][1] == "NaN" for series in found):
                outcome.without_data.append(f"{query.panel}: {query.expr}")
        outcome.wrong += [f"{name} fired for {job}, which runs" for job, name in outcome.fired if name == _ABSENT]
        await servers.aclose()
        await _wait(outcome, prometheus, ())
    return outcome


async def _scraped(prometheus: Prometheus, jobs: Sequence[str]) -> None:
    """Waits until every server was scraped twice: an increase needs a value from before it."""

    missing = set(jobs)

    async def twice() -> bool:
        await asyncio.sleep(_PAUSE)
        found = await prometheus.query("count_over_time(cloudgraft_transport_info[1m]) >= 2")
        missing.difference_update(series["metric"]["job"] for series in found)
        return not missing

    try:
        await until(twice, seconds=60)
    except AssertionError:
        raise AssertionError(f"Prometheus does not scrape {missing}: {await prometheus.scrape_errors()}") from None


async def _wait(outcome: Outcome, prometheus: Prometheus, scenarios: Sequence[Scenario]) -> None:
    """Waits until all alerts of the scenarios have fired; without scenarios, for the one about missing metrics."""
    gone = {(one.name, _ABSENT) for one in SCENARIOS}
    expected = {(one.name, alert) for one in scenarios for alert in one.fires} or gone

    async def all_fired() -> bool:
        await asyncio.sleep(_PAUSE)
        await outcome.look(prometheus)
        return expected <= outcome.fired

    try:
        await until(all_fired, seconds=_PATIENCE)
    except AssertionError:
        outcome.wrong += [f"{alert} did not fire for {job}" for job, alert in expected - outcome.fired]


def _judge(outcome: Outcome) -> list[str]:
    expected = {alert for one in SCENARIOS for alert in one.fires} | {_ABSENT}
    defined = {rule["alert"] for rule in alerts()}
    wrong = [*outcome.wrong, *(f"no scenario fires {alert}" for alert in defined - expected)]
    healthy = {alert for job, alert in outcome.fired if job == "healthy"} - {_ABSENT}
    wrong += [f"{alert} fired for the healthy server" for alert in healthy]
    fired, asked = {alert for _, alert in outcome.fired}, queries()
    click.echo(f"{len(fired & defined)} alerts fired of {len(defined)} defined")
    click.echo(f"{len(asked) - len(outcome.without_data)} queries with data of {len(asked)}")
    return wrong + [f"no data: {query}" for query in outcome.without_data]


@click.command()
def main() -> None:
    """Fires every alert in a real Prometheus, and runs every query of the dashboard."""
    if not is_installed():
        click.echo("not run: Prometheus is not installed; on Debian: apt-get install prometheus", err=True)
        sys.exit(NOT_RUN)
    logging.getLogger("cloudgraft").setLevel(logging.CRITICAL)  # the faults are asked for
    directory = Path(tempfile.mkdtemp(prefix="alerts-"))
    try:
        wrong = _judge(asyncio.run(run(directory)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for line in wrong:
        click.echo(line, err=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
