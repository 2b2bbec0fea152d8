"""The command: ``python -m clouds``, or ``make test-clouds``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clouds.judges import judges
from clouds.record import write_record
from clouds.trial import Trial, try_driver
from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell

__all__ = ["main"]


def _chosen(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    known = list(judges())
    names = [name.strip() for name in value.split(",")] if value else known
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"there is no cloud {unknown[0]}; there is: {', '.join(known)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", callback=_chosen, default="", metavar="NAME,NAME", help="Which ones. All by default.")
@click.option("--record", is_flag=True, help="Write down what passed, for the page of clouds.")
@click.option("--list", "is_list", is_flag=True, help="Only say what there is, and what is missing here.")
@click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")
def main(*, only: list[str], record: bool, is_list: bool, keep: bool) -> None:
    """Judge the drivers of clouds by servers that are started here.

    The exit code is 0 when all passed, 1 when something failed, and 3 when nothing failed but some cloud could not be
    had on this machine; the table names it and says what to install.

    \b
    Examples: python -m clouds
              python -m clouds --only libvirt,ec2 --keep
              python -m clouds --list
    """  # noqa: D301 - click wants the character, not the two
    console = Console(width=None if sys.stdout.isatty() else 160)
    if is_list:
        _print_list(console, only)
        return
    stop_in_order()
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-clouds-"))
    trials = [_tried(name, directory) for name in only]
    _print_table(console, trials)
    if record:
        write_record(trials)
    if keep or any(not trial.is_passed and not trial.not_run for trial in trials):
        console.print(f"logs: {directory}", soft_wrap=True)
    else:
        shutil.rmtree(directory)
    sys.exit(_exit_code(trials))


def _tried(name: str, directory: Path) -> Trial:
    home = directory / name
    home.mkdir()
    return try_driver(name, judges()[name], home, tell)


def _exit_code(trials: Sequence[Trial]) -> int:
    if any(not trial.is_passed and not trial.not_run for trial in trials):
        return FAILED
    return NOT_RUN if any(trial.not_run for trial in trials) else 0


def _print_list(console: Console, only: Sequence[str]) -> None:
    table = Table("cloud", "driver", "can it be judged here")
    for name in only:
        judge = judges()[name]
        table.add_row(name, judge.driver, escape(judge.missing() or "yes"))
    console.print(table)


def _print_table(console: Console, trials: Sequence[Trial]) -> None:
    table = Table("cloud", "driver", "judge", "checks", "result", "seconds")
    for trial in trials:
        checks = "\n".join(f"{'' if c.is_passed else 'FAILED '}{c.name} {_first_line(c.detail)}" for c in trial.checks)
        result = f"not run: {trial.not_run}" if trial.not_run else ("passed" if trial.is_passed else "FAILED")
        took = f"{trial.seconds:.0f}" if trial.seconds else ""
        table.add_row(trial.name, trial.driver, trial.judged_by, escape(checks), escape(result), took)
    console.print(table)
    for trial in trials:
        for check in trial.checks:
            if not check.is_passed:
                console.print(f"{trial.name}, {check.name}:\n{check.detail}", markup=False, soft_wrap=True)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


if __name__ == "__main__":
    main()
