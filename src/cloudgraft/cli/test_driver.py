"""`cloudgraft test-driver`: tests the driver of one cloud of a configuration file against what the engine relies on."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cloudgraft.app.driver_case import DriverCase, driver_case
from cloudgraft.cli.report_output import print_report, tolerate_any_text, write_junit
from cloudgraft.cli.terminal import clean, examples, fail
from cloudgraft.config import load
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.run import DriverSession, chosen
from cloudgraft.conformance.driver.settings import DriverSettings
from cloudgraft.conformance.driver.under_test import CLUSTER_ID
from cloudgraft.conformance.render.table import progress_line
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.sdk.duration import format_duration
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError
from cloudgraft.server.signals import run_or_interrupt

_USAGE: Final = 2  # exit code for wrong usage
_DEFAULT: Final = DriverSettings()


def _names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The values of --only: rules in upper case, checks by their names."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    names = [word.upper() if word.upper() in DRIVER_RULES else word for word in words]
    try:
        chosen(names)
    except InvalidArgumentError as error:
        raise click.BadParameter(f"{error.message}; docs/reference/driver-contract.md lists them") from error
    return tuple(dict.fromkeys(names))


@click.command(
    "test-driver",
    epilog=examples(
        "test-driver lab --quick",
        "test-driver lab -c cloudgraft.yaml --group lab-small",
        "test-driver lab --only D13,D21 --yes",
        "test-driver lab --machines 5 --yes --junit driver.xml -o json",
    ),
)
@click.argument("name")
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=Path("cloudgraft.yaml"),
    show_default=True,
    help="The configuration file that has the cloud NAME.",
)
@click.option("--group", default="", help="The node group whose `machine` section is created, if there are several.")
@click.option("--quick", is_flag=True, help="Only the most important checks: less than a minute on most clouds.")
@click.option("--only", multiple=True, callback=_names, metavar="D13,D21", help="Only these rules or checks.")
@click.option(
    "--machines",
    type=click.IntRange(4, 100),
    metavar="N",
    help=f"The most machines at the same time. [default: {_DEFAULT.most_machines}]",
)
@click.option(
    "--proxy-option",
    default="",
    metavar="KEY",
    help="The option with the cloud's plain HTTP address, where a proxy of the kit loses answers. By default the only "
    "one on loopback, if there is one.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Needed without a terminal, unless the cloud is simulated.")
@click.option("--junit", default="", metavar="FILE", help="Write the results as JUnit XML too, for CI.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "html"]), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    *,
    name: str,
    path: Path,
    group: str,
    quick: bool,
    only: Sequence[str],
    machines: int | None,
    proxy_option: str,
    yes: bool,
    junit: str,
    output: str,
) -> None:
    """Test the driver of the cloud NAME against what the engine relies on (docs/reference/driver-contract.md).

    It builds the driver from the configuration file as `serve` does, creates machines as the node group says, and
    deletes them again. It makes REAL MACHINES, says before how many, and asks. It opens no journal and needs no
    server, no autoscaler and no cluster. Machines of others, and those of a running server, are not touched.

    Each failure comes with its rule, the calls, why it matters and how to fix it. Ctrl-C deletes what was made, too.

    A check that the cloud does not let happen, for want of room or because it does not answer, is inconclusive: it
    neither passed nor failed, and says what it needs.

    Exit code 0: all is well. 1: a rule is broken, or could not be judged, or machines were left behind. 2: wrong usage,
    or the file does not allow the test. 3: no rule is broken, but some checks were inconclusive.
    """
    tolerate_any_text()
    if quick and only:
        raise click.UsageError("--quick is a choice of checks, and so is --only: give one of them")
    try:
        with driver_case(load(path), name, group, proxy_option=proxy_option) as case:
            session = _session(case, only, quick=quick, machines=machines)
            _confirm(case, session, yes=yes)
            report = _judge(context, session)
    except CloudgraftError as error:
        fail(error.message, code=_USAGE)
    print_report(report, output)
    write_junit(report, junit)
    context.exit(report.exit_code)


def _session(case: DriverCase, only: Sequence[str], *, quick: bool, machines: int | None) -> DriverSession:
    most = min(filter(None, (machines or _DEFAULT.most_machines, case.max_machines)))
    settings = replace(
        _DEFAULT.within(most),
        machine=case.machine,
        call_timeout=max(case.call_timeout, _DEFAULT.call_timeout),
        troubled=case.troubled,
    )
    return DriverSession(case.make, settings, only=only, quick=quick)


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
