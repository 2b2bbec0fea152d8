"""`cloudgraft torture`: kills a server of its own under load, and reconciles it with the cloud's list."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

import click

from cloudgraft.cli.server_file import file_here
from cloudgraft.cli.terminal import (
    clean,
    config_option,
    console,
    duration,
    examples,
    fail,
    output_option,
    print_json,
    table,
    text,
)
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cloudgraft.torture.judge import Finding
    from cloudgraft.torture.private_config import Paths
    from cloudgraft.torture.report import Outline, Report, Step
    from cloudgraft.torture.run import Run
    from cloudgraft.torture.server_process import ServerProcess

_USAGE: Final = 2
_INCONCLUSIVE: Final = 3
_MOST_SEED: Final = 1_000_000


@click.command(
    "torture",
    epilog=examples(
        "torture -c cloudgraft.yaml",
        "torture -c cloudgraft.yaml --group test --kills 30 --machines 10 --yes",
        "torture -c cloudgraft.yaml --seed 4711 -o json",
    ),
)
@config_option("The configuration file with the cloud and the group. It is only read.", required=False)
@click.option("--group", default="", help="The node group whose machines are made. Default: the only one of the file.")
@click.option("--kills", default=10, show_default=True, type=click.IntRange(1, 1000), help="Kills of the server.")
@click.option("--machines", default=6, show_default=True, type=click.IntRange(1, 100), help="Machines at a time.")
@click.option(
    "--most-creates", default=60, show_default=True, type=click.IntRange(1, 10_000), help="Calls to create, in all."
)
@click.option(
    "--minutes", default=10.0, show_default=True, type=click.FloatRange(0.1, 55), help="Time until the last kill."
)
@click.option(
    "--patience",
    default="5m",
    show_default=True,
    callback=duration,
    metavar="DURATION",
    help="How long the cloud may take to boot or to delete a machine.",
)
@click.option("--seed", type=click.IntRange(0), help="Repeats the plan of an earlier run. Default: a random one.")
@click.option(
    "--yes-use",
    default="",
    metavar="GROUP",
    help="For drivers of existing machines: confirms that all machines of this group's cloud may be used.",
)
@click.option("--yes", is_flag=True, help="Begin without asking.")
@click.option(
    "--clean-up",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIRECTORY",
    help="Only delete the machines of an earlier run that was killed; a run names the directories of such runs.",
)
@output_option
@click.pass_context
def command(
    context: click.Context,
    *,
    path: Path | None,
    group: str,
    kills: int,
    machines: int,
    most_creates: int,
    minutes: float,
    patience: timedelta,
    seed: int | None,
    yes_use: str,
    yes: bool,
    clean_up: Path | None,
    output: str,
) -> None:
    """Kill a server under load with your driver, and see whether a machine is lost, doubled or left behind.

    It makes REAL MACHINES in the cloud of one group, within the bounds below, and deletes them at the end. It runs
    servers of its own, with a cluster id, journal and sockets of their own, and never touches your journal or your
    machines. While a client orders and deletes machines as the autoscaler would, each server is killed with SIGKILL at
    a random moment and started again. All the time the cloud is listed by a second driver, outside the server, and the
    list is compared with the journal and with every answer of the server.

    It refuses to run while a server of the file is running, when the group has machines, and when nothing can be
    concluded from the cloud's list. Ctrl-C deletes what was made, too. A run that is itself killed cannot: the next one
    names its machines, and --clean-up deletes them.

    Exit code 0: all rules held. 1: a rule was broken, or machines are left behind. 2: wrong usage, or refused. 3: it
    could not be judged.
    """
    if clean_up is not None:
        _clean_up(clean_up, patience.total_seconds())
        return
    from cloudgraft.app import logs
    from cloudgraft.torture.plan import Bounds
    from cloudgraft.torture.prepare import prepare, remove
    from cloudgraft.torture.report import Verdict
    from cloudgraft.torture.run import RefusedError, Run

    if most_creates < machines:
        raise click.UsageError("--most-creates must be at least --machines")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("it makes real machines, and nobody can be asked here: say --yes to agree")
    _tell_of_unfinished()
    try:
        job = prepare(
            path or file_here(),
            group=group,
            bounds=Bounds(kills=kills, machines=machines, creates=most_creates, minutes=minutes),
            seed=secrets.randbelow(_MOST_SEED) if seed is None else seed,
            patience=patience.total_seconds(),
            yes_use=yes_use,
            starter=_starter,
        )
    except (RefusedError, InvalidArgumentError) as error:
        _refuse(error)
    progress = _Progress()
    run = Run(job, progress.step)
    try:
        with job.paths.own_log.open("w", encoding="utf-8") as file, progress:
            logs.configure(2, "console", file)
            ended = asyncio.run(_run(run, lambda outline: _agree(outline, job.seed, yes=yes)))
    except RefusedError as error:
        remove(job.paths)
        _refuse(error)
    except CloudgraftError as error:
        remove(job.paths)
        fail(error.message, code=_INCONCLUSIVE)
    report, is_interrupted = run.report, isinstance(ended, signal.Signals)
    if report.verdict is Verdict.HELD and not (is_interrupted and report.cleanup_trouble):
        remove(job.paths)
    if output == "json":
        print_json(report.to_json())
    else:
        _print(report, is_interrupted=is_interrupted)
    if isinstance(ended, signal.Signals):
        context.exit(128 + ended)
    context.exit({Verdict.HELD: 0, Verdict.VIOLATED: 1}.get(report.verdict, _INCONCLUSIVE))


def _starter(paths: Paths) -> Callable[[bool], Awaitable[ServerProcess]]:
    from cloudgraft.torture.server_process import GuardedServer

    command = (sys.executable, "-m", "cloudgraft.cli.standby", "-c", str(paths.config))
    return lambda with_children: GuardedServer.start(command, paths.log, with_children=with_children)


async def _run(run: Run, agree: Callable[[Outline], bool]) -> object:
    from cloudgraft.server.signals import run_or_interrupt

    return await run_or_interrupt(
        run.run(agree),
        on_first=lambda: click.echo("interrupted: deleting what was made ...", err=True),
        only_first=True,  # a second Ctrl-C would leave machines behind
    )


def _refuse(error: CloudgraftError) -> NoReturn:
    """Ends the command with every reason on a line of its own."""
    for reason in error.message.splitlines():
        click.echo(f"error: {clean(reason)}", err=True)
    click.echo("Nothing was changed.", err=True)
    raise SystemExit(_USAGE)


# -- earlier runs ------------------------------------------------------------------------------------------------------


def _tell_of_unfinished() -> None:
    """Names the machines of runs that were killed, and the command that deletes them."""
    from cloudgraft.torture.leftovers import unfinished
    from cloudgraft.torture.prepare import directory_of_runs

    for run in unfinished(directory_of_runs()):
        names = f"may have left {', '.join(run.machines)}" if run.machines else "may have left machines"
        click.echo(f"warning: an earlier run did not clean up: it {clean(names)}", err=True)
        click.echo(f"  to delete them: {_clean_up_command(run.directory)}", err=True)


def _clean_up_command(directory: Path) -> str:
    return f"cloudgraft torture --clean-up {shlex.quote(str(directory))}"


def _clean_up(directory: Path, patience: float) -> None:
    """Deletes what an earlier run made; exit code 1 when machines are left, and 3 when that is not known."""
    from cloudgraft.cli.progress import working
    from cloudgraft.torture.leftovers import clean_up
    from cloudgraft.torture.prepare import remove
    from cloudgraft.torture.private_config import Paths

    try:
        with working("deleting the machines of the run"):
            left = asyncio.run(clean_up(directory, patience))
    except InvalidArgumentError as error:
        fail(error.message, code=_USAGE)
    except CloudgraftError as error:
        fail(error.message, code=_INCONCLUSIVE)
    if left:
        fail(f"these machines are left: {', '.join(left)}", hint="delete them by hand")
    remove(Paths(directory))
    click.echo("All machines of that run are deleted, and so is its directory.")


# -- before ------------------------------------------------------------------------------------------------------------


def _agree(outline: Outline, seed: int, *, yes: bool) -> bool:
    cost = f", each {clean(outline.hourly)} an hour" if outline.hourly else ""
    foreign = f"the {outline.foreign} other machines" if outline.foreign != 1 else "the 1 other machine"
    lines = [
        f"torture of group {outline.group} in cloud {outline.cloud} (driver {outline.driver}), seed {seed}",
        f"  makes     at most {outline.machines} machines at a time and {outline.creates} in all{cost},",
        f"            marked as cluster {outline.cluster}, and deletes them at the end",
        f"  kills     a server of its own {_times(outline.kills)}",
        f"  takes     at most {outline.minutes:g} minutes, and {outline.settle_seconds:.0f} s to settle",
        f"  leaves    {foreign} in the cloud's list, and your journal, as they are",
    ]
    click.echo("\n".join(map(clean, lines)), err=True)
    if yes:
        return True
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the event loop's own would not end the question
    try:
        return click.confirm("Begin?", err=True)
    except click.Abort:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# -- meanwhile ---------------------------------------------------------------------------------------------------------


class _Progress:
    """A bar on a terminal, and one line for each kill in a pipe; on standard error."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, step: Step) -> None:
        """Shows the state of the run."""
        counts = f"{step.alive} machines, {step.ordered} ordered"
        if not self._console.is_terminal:
            if step.line:
                click.echo(f"{step.line}: {counts} so far", err=True)
            return
        if self._bar is None:
            self._begin(step)
        if self._bar is not None and self._task is not None:
            minutes, seconds = divmod(int(step.seconds_left), 60)
            left = f"at most {minutes}:{seconds:02} left" if step.phase == "killing" else ""
            shown = f"{counts}   {left}"
            self._bar.update(self._task, completed=step.kills, description=step.phase, counts=shown)

    def _begin(self, step: Step) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            "{task.description:<11}",
            BarColumn(30),
            MofNCompleteColumn(),
            "kills",
            TextColumn("{task.fields[counts]}"),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(step.phase, total=step.planned, counts="")
        self._bar.start()


# -- afterwards --------------------------------------------------------------------------------------------------------


def _print(report: Report, *, is_interrupted: bool) -> None:
    out = console()
    rows = [
        ("kills", f"{report.kills_done} of {report.planned}"),
        *((f"  {moment}", count) for moment, count in report.kills.items()),
        ("machines", f"{report.machines} made, {report.ordered} ordered, at most {report.most} at a time"),
        ("lists compared", report.lists),
        ("restart", f"{max(report.restart_seconds, default=0.0):.1f} s at most"),
        ("time", f"{report.seconds:.0f} s"),
        ("seed", report.seed),
    ]
    out.print(table(["RUN", ""], rows))
    for finding in report.notes:
        click.echo(f"note: {clean(finding.what)}")
    for finding in report.violations:
        _print_violation(finding)
    if (report.violations or report.trouble) and report.history:
        click.echo("The last steps:")
        click.echo("\n".join(f"  {clean(line)}" for line in report.history))
    if report.left_behind:
        click.echo(f"LEFT BEHIND: {clean(', '.join(report.left_behind))}")
    if report.cleanup_trouble:
        click.echo(f"could not clean up: {clean(report.cleanup_trouble)}")
    if report.left_behind or report.cleanup_trouble:
        click.echo(f"Try again with `{_clean_up_command(report.directory)}`, or delete by hand all machines whose")
        click.echo(f"name or tags have the cluster id {report.cluster_id}.")
    _print_end(report, is_interrupted=is_interrupted)


def _print_violation(finding: Finding) -> None:
    from cloudgraft.torture.judge import ADVICE

    console().print(text("VIOLATED", "red"), text(finding.rule.value))
    click.echo(f"  {clean(finding.what)}")
    click.echo(f"  what to do: {ADVICE[finding.rule]}")


def _print_end(report: Report, *, is_interrupted: bool) -> None:
    from cloudgraft.torture.report import Verdict

    if report.verdict is Verdict.HELD:
        what = (
            "interrupted; nothing was broken so far" if is_interrupted else "held: nothing lost, doubled or left behind"
        )
        click.echo(f"{what}. All machines of this run are deleted.")
        return
    if report.verdict is Verdict.INCONCLUSIVE:
        click.echo(f"could not be judged: {clean(report.trouble or report.cleanup_trouble)}")
    elif not report.left_behind and not report.cleanup_trouble:
        click.echo("All machines of this run are deleted.")
    click.echo(
        f"Journal, logs and history are in {report.directory}; its cloudgraft.yaml has the secrets of your file."
    )
    click.echo(f"Repeat the plan with --seed {report.seed}; the moments differ a little, as the cloud does.")
