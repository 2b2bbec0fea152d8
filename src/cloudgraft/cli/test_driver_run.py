"""Runs the driver kit for `cloudgraft test-driver`: says what it will create, asks, and shows the progress."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cloudgraft.app.driver_case import DriverCase, driver_case
from cloudgraft.cli.terminal import clean, fail
from cloudgraft.config import load
from cloudgraft.conformance.driver.run import DriverSession
from cloudgraft.conformance.driver.settings import DriverSettings
from cloudgraft.conformance.driver.under_test import CLUSTER_ID
from cloudgraft.conformance.render.table import progress_line
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.signals import run_or_interrupt

_USAGE: Final = 2  # exit code for wrong usage
_DEFAULT: Final = DriverSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to test, and how much of it."""

    cloud: str
    group: str
    only: Sequence[str]
    quick: bool
    machines: int | None
    proxy_option: str


def run_checks(context: click.Context, path: Path, wanted: Wanted, *, yes: bool) -> Report:
    """Tests the driver of a cloud of the file. Ends the command when that cannot be done."""
    try:
        with driver_case(load(path), wanted.cloud, wanted.group, proxy_option=wanted.proxy_option) as case:
            session = _session(case, wanted)
            _confirm(case, session, yes=yes)
            return _judge(context, session)
    except CloudgraftError as error:
        fail(error.message, code=_USAGE)


def _session(case: DriverCase, wanted: Wanted) -> DriverSession:
    most = min(filter(None, (wanted.machines or _DEFAULT.most_machines, case.max_machines)))
    settings = replace(
        _DEFAULT.within(most),
        machine=case.machine,
        call_timeout=max(case.call_timeout, _DEFAULT.call_timeout),
        troubled=case.troubled,
    )
    return DriverSession(case.make, settings, only=wanted.only, quick=wanted.quick, name=case.driver)


def _confirm(case: DriverCase, session: DriverSession, *, yes: bool) -> None:
    """Says what will be created, and asks where machines may cost money."""
    for line in _plan(case, session):
        click.echo(line, err=True)
    if yes or case.is_free:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        fail("nothing was created: say --yes to create these machines without being asked", code=_USAGE)
    click.confirm("Create them?", abort=True, err=True)


def _plan(case: DriverCase, session: DriverSession) -> Iterator[str]:
    settings = " ".join(f"{key}={value}" for key, value in case.machine.items())
    yield clean(f"Testing the driver {case.driver} of cloud {case.cloud}: {len(session.checks)} checks.")
    yield clean(
        f"It creates up to {session.most_machines} machines at the same time, {session.all_machines} in all, as node "
        f"group {case.group} does ({settings or 'no machine settings'}), and deletes them again."
    )
    marks = session.marks
    yield f"Their names begin with {marks.prefix}; their tag {CLUSTER_ID} is {marks.cluster_id}."
    if case.list_delay is not None:
        yield f"It takes about {format_duration(session.expected(case.list_delay))}, and longer where calls are slow."


def _judge(context: click.Context, session: DriverSession) -> Report:
    with _bar(len(session.checks)) as progress:
        ended = asyncio.run(
            run_or_interrupt(
                session.run(progress),
                on_first=lambda: click.echo("interrupted: deleting what the kit made ...", err=True),
                only_first=True,  # a second Ctrl-C would leave machines behind
            )
        )
    report = session.report
    if isinstance(ended, signal.Signals):
        left = f"left behind: {', '.join(report.left_behind)}" if report.left_behind else "what it made is deleted"
        click.echo(f"interrupted after {len(report.results)} checks; {clean(left)}", err=True)
        context.exit(128 + ended)
    return report


@contextmanager
def _bar(checks: int) -> Iterator[Callable[[Result], None]]:
    """A bar with the time left, and each check that does not pass; nothing in a pipe."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task("testing", total=checks)

        def show(result: Result) -> None:
            bar.advance(task)
            if result.status is not Status.PASSED:
                bar.console.print(progress_line(result), soft_wrap=True)

        yield show
