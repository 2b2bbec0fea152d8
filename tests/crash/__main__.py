"""All of the crash test, with figures: `make test-crash`, or `python -m tests.crash --help`.

Exit code 0 when nothing was lost, doubled or touched that is another's, at any moment at which the process was killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import click

from tests.crash.campaign import VARIANTS, Campaign, Result, second_crashes
from tests.crash.hanging import hang_for
from tests.crash.life import Plan
from tests.crash.points import Kind
from tests.crash.script import SCRIPT
from tests.crash.served import ServedProgram
from tests.crash.traced import has_strace, trace
from tests.needs import NO_SHARED_MEMORY, shared_memory

_MINUTE = 60.0
_TENTH = 10
_FAST = 1.0  # seconds; the mean of a round of calls, on whatever machine, while a cloud hangs


@click.command()
@click.option("--seed", default=0, show_default=True, help="Chooses second crashes and random times.")
@click.option("--at-a-time", default=4 * (os.cpu_count() or 1), show_default=True, help="Lives that are lived at once.")
@click.option(
    "--random-lives", default=12, show_default=True, help="Whole lives, up to ten kills at random times in each."
)
@click.option("--served-lives", default=2, show_default=True, help="The same with `cloudgraft serve` itself.")
@click.option("--phase", help="Only the points of this phase, and nothing else.")
def main(seed: int, at_a_time: int, random_lives: int, served_lives: int, phase: str | None) -> None:
    """kill -9 at every commit and before and after every call to the cloud, in every kind of cloud."""
    began = time.monotonic()
    logging.getLogger("cloudgraft").setLevel(logging.CRITICAL)  # what goes wrong here is what is asked for
    base = _directory()
    report = _Report()
    with ThreadPoolExecutor(1) as beside:
        minute = beside.submit(lambda: asyncio.run(hang_for(base / "hanging", _MINUTE))) if phase is None else None
        for number, variant in enumerate(VARIANTS):
            campaign = Campaign(base / f"cloud-{number}", variant)
            _show_points(campaign)
            plans = [Plan(variant=variant, point=p) for p in campaign.points if phase in (None, p.phase)]
            report.run(campaign, "points", plans, at_a_time)
            if phase is None:
                some = plans[seed % _TENTH :: _TENTH]
                seconds = islice(second_crashes(seed + number), len(some))
                twice = [replace(p, second=q, is_whole=True) for p, q in zip(some, seconds, strict=True)]
                report.run(campaign, "every tenth, a crash during the recovery, and on to the end", twice, at_a_time)
                lives = [Plan(variant=variant, random_kills=10, seed=seed + n) for n in range(random_lives)]
                report.run(campaign, "whole lives, kills at random times", lives, at_a_time)
                served = [replace(p, program=ServedProgram, kill_after=0.8) for p in lives[:served_lives]]
                report.run(campaign, "the same with `cloudgraft serve`", served, 1)
        if minute is not None:
            report.check("a cloud hangs for a minute", lambda: _hung(minute.result()))
            report.check("on disk before it is told", lambda: _traced(base / "traced"))
    click.echo(f"{report.crashes} crashes, {report.failures} failures, {time.monotonic() - began:.0f} s")
    if report.failures:
        click.echo(f"what failed is kept in {base}")
        sys.exit(1)
    shutil.rmtree(base)


def _directory() -> Path:
    memory = shared_memory()  # a process that is killed loses nothing of what it wrote, wherever that is
    if memory is None:
        click.echo(NO_SHARED_MEMORY, err=True)
    return Path(tempfile.mkdtemp(prefix="crash-", dir=memory))


class _Report:
    """Says how it goes, and counts."""

    def __init__(self) -> None:
        self.crashes = 0
        self.failures = 0

    def run(self, campaign: Campaign, title: str, plans: Sequence[Plan], at_a_time: int) -> None:
        began = time.monotonic()
        results = campaign.run(plans, at_a_time, self._tell)
        crashes = sum(result.crashes for result in results)
        late = sum(not result.was_exact for result in results)
        self.crashes += crashes
        note = f", {late} of them at the end of the phase instead" if late else ""
        click.echo(f"  {title}: {len(plans)} lives, {crashes} crashes{note}, {time.monotonic() - began:.0f} s")

    def check(self, title: str, call: Callable[[], str]) -> None:
        try:
            click.echo(f"{title}: {call()}")
        except AssertionError as error:
            self.failures += 1
            click.echo(f"FAILED {title}: {error}")

    def _tell(self, result: Result) -> None:
        if result.failure:
            self.failures += 1
            click.echo(f"FAILED {result.plan}\n  {result.failure}\n  kept in {result.directory}")


def _show_points(campaign: Campaign) -> None:
    """How many moments there are at which it can be killed, by phase and kind."""
    kinds = [kind.value for kind in Kind]
    counted = Counter((point.phase, point.kind) for point in campaign.points)
    click.echo(f"\n{campaign.variant}: {len(campaign.points)} crash points")
    click.echo("  " + " ".join([f"{'phase':<22}", *(f"{kind:>8}" for kind in kinds), f"{'all':>8}"]))
    for phase in SCRIPT:
        numbers = [counted[phase.name, kind] for kind in kinds]
        click.echo("  " + " ".join([f"{phase.name:<22}", *(f"{n:>8}" for n in (*numbers, sum(numbers)))]))


def _hung(seconds: Sequence[float]) -> str:
    worst = max(seconds)
    if worst > _FAST:
        raise AssertionError(f"a round of calls took {worst * 1000:.0f} ms per call")
    return f"{len(seconds)} rounds of all calls, {worst * 1000:.1f} ms per call in the worst of them; nothing lost"


def _traced(directory: Path) -> str:
    if not has_strace():
        return "not looked at: there is no strace that may be used here"
    findings = trace(directory)
    wrong = [finding for finding in findings if not finding.is_in_order]
    if wrong:
        raise AssertionError("; ".join(map(str, wrong)))
    return "; ".join(map(str, findings))


if __name__ == "__main__":
    main()
