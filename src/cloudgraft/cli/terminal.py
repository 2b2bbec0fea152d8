"""Shares between the commands: options, examples, tables, JSON and errors.

Text of a server is shown with control characters escaped, so that no answer can control the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from rich.console import Console
from rich.text import Text

from cloudgraft.cli.fitting_table import FittingTable
from cloudgraft.cli.server_file import DEFAULT_FILE, file_here
from cloudgraft.sdk.duration import parse_duration

F = TypeVar("F", bound=Callable[..., Any])
_PIPE_WIDTH: Final = 100_000  # in a pipe nothing is truncated or wrapped
_STYLES: Final = {
    "running": "green",
    "failed": "red",
    "deleting": "yellow",
    "down": "red",
    "up": "green",
    "paused": "yellow",
    "refused": "red",
}


def clean(text: str) -> str:
    """The text with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def console() -> Console:
    """Standard output: as wide as the terminal, and without a limit in a pipe."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def text(value: object, style: str = "") -> Text:
    """A value as text without control characters."""
    return Text(clean(str(value)), style=style or _STYLES.get(str(value), ""))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> FittingTable:
    """A table; a row's values may be rich's own."""
    cells = [[value if isinstance(value, Text) else text(value) for value in row] for row in rows]
    return FittingTable(headings, cells, title)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table."""
    console().print(table(headings, rows))


def ago(seconds: float | None) -> str:
    """An age for people: 45s, 12m, 3h05m, 2d4h."""
    if seconds is None:
        return "never"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 60:
        return f"{minutes}m"
    return f"{hours}h{minutes % 60:02}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"


def print_json(value: object) -> None:
    """Prints JSON, for programs."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_result(result: Mapping[str, Any], *, done: str, nothing: str, output: str) -> None:
    """Prints the result for each machine of a request; exit code 1 when one was refused.

    ``done`` is the word for a success, such as "adopted"; ``nothing`` is printed when there was no machine at all.
    """
    items = result["items"]
    refused = [item for item in items if item["refused"]]
    if output == "json":
        print_json(result)
    else:
        _print_items(result, done)
        if not items:
            click.echo(nothing)
        elif result["dryRun"] and len(refused) < len(items):
            click.echo(f"Nothing was changed: {len(items) - len(refused)} would be {done}. Say --yes to do it.")
        elif not result["dryRun"]:
            click.echo(f"{len(items) - len(refused)} {done}, {len(refused)} refused.")
    if refused:
        raise SystemExit(1)


def _print_items(result: Mapping[str, Any], done: str) -> None:
    word = f"would be {done}" if result["dryRun"] else done
    columns = ("machineId", "cloud", "group", "name", "providerId")
    rows = [[*(item[key] for key in columns), _outcome(item, word)] for item in result["items"]]
    if rows:
        print_table(["MACHINE ID", "CLOUD", "GROUP", "NAME", "PROVIDER ID", "RESULT"], rows)
    for note in result["notes"]:
        click.echo(f"note: {clean(note)}")


def _outcome(item: Mapping[str, Any], word: str) -> Text:
    if item["refused"]:
        return text(f"refused: {item['refused']}", "red")
    return text(f"{word} ({item['note']})" if item["note"] else word)


# -- options -----------------------------------------------------------------------------------------------------------


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or programs.",
)


check_option = click.option("--check", is_flag=True, help="Only check the configuration: exit code 0 when it is good.")


def config_option(help_: str, *, default: Path = DEFAULT_FILE, required: bool = True) -> Callable[[F], F]:
    """Adds the configuration file of a server, as ``path``: without the option, the default one of this directory.

    Where it is not required, the command gets None, and calls :func:`file_here` when it needs the file.
    """

    def found(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
        return file_here(default) if path is None and required else path

    return click.option(
        "-c",
        "--config",
        "path",
        type=click.Path(path_type=Path),
        callback=found,
        metavar="FILE",
        help=f"{help_} Default: ./{default}.",
    )


def log_options(command: F) -> F:
    """Adds -v and --log-format to the command of a server."""
    log_format = click.option(
        "--log-format", type=click.Choice(["console", "json"]), help="How the log looks (default: console)."
    )
    verbosity = click.option(
        "-v",
        "--verbosity",
        type=click.IntRange(0, 10),
        help="1: errors, 2: starts, stops and reloads (default), 4: calls that Python answers, 5: every call.",
    )
    return verbosity(log_format(command))


def duration(_context: click.Context, _option: click.Parameter, text: str | None) -> timedelta | None:
    """Reads an option's value such as 500ms or 1m; None when it is not given."""
    if not text:
        return None
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if found <= timedelta(0):
        raise click.BadParameter("it must be longer than 0s")
    return found


def examples(*commands: str, title: str = "Examples") -> str:
    """The end of a --help; the first character keeps click from rewrapping it."""
    return "\n".join(["\b", f"{title}:", *(f"  cloudgraft {command}" for command in commands)])


def next_steps(done: str, *commands: str) -> str:
    """The end of a command that wrote something: what it did, and the commands to run next, one per line.

    Every command that prints such steps uses this: tests/cli/test_next_steps.py runs them in a new environment.
    """
    return "\n".join([f"{done} Next:", *(f"  {command}" for command in commands)])


# -- errors ------------------------------------------------------------------------------------------------------------


def fail(message: str, *, hint: str = "", code: int = 1) -> NoReturn:
    """Ends the command with one line about what failed, and a hint."""
    click.echo(f"error: {clean(message)}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    raise SystemExit(code)
