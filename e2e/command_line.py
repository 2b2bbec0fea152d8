"""What the commands have in common: options, progress, a directory for logs, and what the exit code says."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import click

from e2e.build import CannotBuildError
from e2e.modules import AUTOSCALERS
from e2e.runner import Outcome, Result

__all__ = [
    "FAILED",
    "NOT_RUN",
    "binaries_option",
    "exit_code",
    "keep_option",
    "logs_directory",
    "not_run",
    "stop_in_order",
    "tell",
]

FAILED: Final = 1
NOT_RUN: Final = 3  # something could not be built: neither passed nor failed


def _binaries(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, Path]:
    found = {}
    for value in values:
        name, _, path = value.partition("=")
        if name not in AUTOSCALERS or not path:
            raise click.BadParameter("say it like 1.31=/path/to/cluster-autoscaler")
        if not Path(path).is_file():
            raise click.BadParameter(f"there is no file {path}")
        found[name] = Path(path).resolve()
    return found


binaries_option = click.option(
    "--binary", callback=_binaries, multiple=True, metavar="RELEASE=PATH", help="An autoscaler that you have built."
)

keep_option = click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")


@contextmanager
def logs_directory(name: str, *, keep: bool) -> Iterator[Path]:
    """Yields a directory for logs, and ends the program when the block fails, with the exit code of that.

    When the block passes, the directory is removed, unless ``keep``.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"cloudgraft-{name}-"))
    try:
        yield directory
    except CannotBuildError as error:
        shutil.rmtree(directory)
        not_run(str(error))
    except Exception as error:  # noqa: BLE001 - whatever it was, the logs say more
        (directory / "failure.txt").write_text("".join(traceback.format_exception(error)), "utf-8")
        tell(f"failed: {str(error) or type(error).__name__}\nlogs: {directory}")
        sys.exit(FAILED)
    if keep:
        tell(f"logs: {directory}")
    else:
        shutil.rmtree(directory)


def not_run(why: str) -> NoReturn:
    """Ends the program, which could not be run here."""
    tell(f"not run: {why}")
    sys.exit(NOT_RUN)


def tell(message: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


def exit_code(results: Sequence[Result]) -> int:
    """0 when all passed, 1 when something failed, 3 when nothing failed but something was not run."""
    outcomes = {result.outcome for result in results}
    if Outcome.FAILED in outcomes:
        return FAILED
    return NOT_RUN if Outcome.NOT_RUN in outcomes else 0


def stop_in_order() -> None:
    """Makes SIGTERM end the program as Ctrl-C does, so that every process is stopped."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
