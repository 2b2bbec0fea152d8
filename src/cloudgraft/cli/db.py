"""`cloudgraft db`: checks, upgrades, exports, imports and repairs the journal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import click

from cloudgraft.cli.groups import Commands
from cloudgraft.cli.progress import counted, working
from cloudgraft.cli.server_file import file_here
from cloudgraft.cli.terminal import examples, output_option, print_table
from cloudgraft.sdk.common.files import exists
from cloudgraft.sdk.errors import AlreadyExistsError, PreconditionError

if TYPE_CHECKING:
    from cloudgraft.store.databases.database import Database
    from cloudgraft.store.identity import Configured
    from cloudgraft.store.maintenance.check import Report

F = TypeVar("F", bound=Callable[..., Any])
_STDOUT: Final = "-"


def _example(*commands: str) -> str:
    return examples(*(f"db {command}" for command in commands), title="Example")


def _where(function: F) -> F:
    """Adds the options that select a journal."""
    store = click.option(
        "--store",
        default="",
        metavar="PATH_OR_URL",
        help="The journal: a SQLite file, or postgresql://user@host/database.",
    )
    config = click.option(
        "-c",
        "--config",
        "config_file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="The configuration that says where the journal is. Default: ./cloudgraft.yaml.",
    )
    return store(config(function))


@click.group(
    "db",
    cls=Commands,
    epilog=_example(
        "check --config cloudgraft.yaml",
        "export --store journal.db --to journal.jsonl",
        "import journal.jsonl --store postgresql://cloudgraft@db.example.org/cloudgraft",
    ),
)
def command() -> None:
    """Check, upgrade, export, import and repair the journal.

    The journal is what cloudgraft knows of its machines. A password for PostgreSQL does not belong on a command line:
    let --config name a passwordFile, or set PGPASSWORD or PGPASSFILE.
    """


@command.command("check", epilog=_example("check --store journal.db", "check --config cloudgraft.yaml -o json"))
@_where
@output_option
@click.pass_context
def _check(context: click.Context, store: str, config_file: Path | None, output: str) -> None:
    """Read the whole journal, and report whether it is intact and what it contains.

    Changes nothing, and may run beside a server. Exit code 1 when something is wrong, with what to do about it.
    """
    from cloudgraft.store.maintenance.check import check_journal

    with _database(store, config_file) as (database, configured), working("reading the journal"):
        report = check_journal(database, configured)
    if output == "json":
        click.echo(json.dumps(_as_json(report), indent=2))
    else:
        _print(report)
    if not report.is_sound:
        context.exit(1)


@command.command("upgrade", epilog=_example("upgrade --config cloudgraft.yaml"))
@_where
@output_option
def _upgrade(store: str, config_file: Path | None, output: str) -> None:
    """Bring the journal's schema up to date with this release.

    A server does this to a SQLite journal by itself when it starts, and keeps a copy of the old one; so does this
    command. In PostgreSQL stop all replicas and make a backup first. A journal that does not exist is made.
    """
    from cloudgraft.store.databases.database import Access
    from cloudgraft.store.identity import settle_owner
    from cloudgraft.store.migrate import Schema
    from cloudgraft.store.schema import HEAD

    with _database(store, config_file) as (database, configured), working("upgrading the journal"):
        found = database.open(Access.UPGRADE)
        settle_owner(database, configured)  # a new journal has an identity from the beginning
    before = found.revision or None
    if output == "json":
        click.echo(json.dumps({"journal": database.label, "before": before, "after": HEAD}))
    elif found.schema is Schema.CURRENT:
        click.echo(f"{database.label} is up to date (schema {HEAD}).")
    else:
        click.echo(f"{database.label} is now of schema {HEAD}; it was {before or 'empty'}.")


@command.command("export", epilog=_example("export --store journal.db --to journal.jsonl", "export --store journal.db"))
@_where
@click.option("--to", "target", default=_STDOUT, metavar="FILE", help="Where to write it; standard output otherwise.")
def _export(store: str, config_file: Path | None, target: str) -> None:
    """Write all of the journal as lines of JSON: machines, groups, pauses, events.

    It is the state of one moment, and may be made beside a running server. Nothing of a cloud's options is in it, but
    every group's `machine` section is, as the file has it: a secret belongs into a file that is named there. A file
    appears only when it is complete, and none is overwritten.
    """
    from cloudgraft.store.maintenance.transfer import export_lines

    with _database(store, config_file) as (database, _), _target(target) as stream:
        lines = export_lines(database)
        if stream.isatty():  # the lines themselves are the progress
            stream.writelines(f"{line}\n" for line in lines)
            return
        with working("exporting") as show:
            stream.writelines(f"{line}\n" for line in counted(lines, "exporting", show))


@command.command("import", epilog=_example("import journal.jsonl --config cloudgraft.yaml"))
@click.argument("source", type=click.File(encoding="utf-8"), metavar="FILE")
@_where
@output_option
def _import(source: IO[str], store: str, config_file: Path | None, output: str) -> None:
    """Fill a new or empty journal with an export: all of it or nothing.

    FILE is what `cloudgraft db export` wrote; - for standard input. This is the way from SQLite to PostgreSQL. The
    cluster id comes along, so all machines stay known as ours. Refused while a server uses the journal.
    """
    from cloudgraft.store.maintenance.transfer import import_lines

    with _database(store, config_file) as (database, configured), working("importing") as show:
        rows = import_lines(database, counted(source, "importing", show), configured)
    if output == "json":
        click.echo(json.dumps({"journal": database.label, "rows": rows}))
    else:
        click.echo(f"Imported {rows} rows into {database.label}.")


@command.command("repair", epilog=_example("repair --config cloudgraft.yaml", "repair --store journal.db --yes"))
@_where
@click.option("--yes", is_flag=True, help="Do it. Otherwise it is only shown what would be done.")
@output_option
def _repair(store: str, config_file: Path | None, output: str, *, yes: bool) -> None:
    """Restore damaged rows of the journal where the checksum proves what they were, and remove the others.

    Shows what is damaged, what is done about it and what follows. With --yes it is done: all of it or nothing, with no
    server running on the journal. Of a SQLite journal a copy is kept as it was. Nothing is guessed; a backup is better
    where there is a recent one.
    """
    from cloudgraft.store.maintenance.repair import repair_journal

    what = "repairing the journal" if yes else "reading the journal"
    with _database(store, config_file) as (database, configured), working(what):
        findings = repair_journal(database, configured, apply=yes)
    if output == "json":
        shown = [{"what": found.what, "action": found.action, "follows": found.follows or None} for found in findings]
        click.echo(json.dumps({"journal": database.label, "done": yes, "findings": shown}, indent=2))
        return
    for found in findings:
        click.echo(f"{found.what}\n  {found.action}" + (f"; then: {found.follows}" if found.follows else ""))
    if not findings:
        click.echo(f"Nothing in {database.label} is damaged.")
    else:
        click.echo("Done." if yes else "Nothing was changed. Stop the server, and use --yes to do this.")


@contextlib.contextmanager
def _database(store: str, config_file: Path | None) -> Iterator[tuple[Database, Configured]]:
    """Opens the journal, with the configured cluster."""
    if store and config_file is not None:
        raise click.UsageError("--store and --config exclude each other: use one of them")
    if not store:
        config_file = config_file or file_here(what="journal", instead="--config FILE, or --store PATH_OR_URL")
    from cloudgraft.app.journals import database_at, database_from
    from cloudgraft.config import load
    from cloudgraft.store.identity import Configured

    config = load(config_file) if config_file is not None else None
    database = database_from(config) if config is not None else database_at(store)
    try:
        yield database, Configured(config.cluster, config.cluster_id or "") if config is not None else Configured()
    finally:
        database.close()


@contextlib.contextmanager
def _target(target: str) -> Iterator[IO[str]]:
    """Standard output, or a file that only its owner can read and that appears when it is complete."""
    if target == _STDOUT:
        yield sys.stdout
        return
    path = Path(target)
    if exists(path):
        raise AlreadyExistsError(f"{path} exists, and is not overwritten: name another file")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise PreconditionError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            yield stream
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _print(report: Report) -> None:
    cluster = f"cluster {report.cluster or 'unknown'}, cluster id {report.cluster_id or 'none'}"
    click.echo(f"{report.label}: schema {report.revision or 'none'}, {cluster}")
    if report.rows:
        rows = [(f"machines {state}", count) for state, count in report.machines.items()]
        rows += [(name.replace("_", " "), count) for name, count in report.rows.items()]
        print_table(["WHAT", "HOW MANY"], rows)
    for warning in report.warnings:
        click.echo(f"warning: {warning}")
    for problem in report.problems:
        click.echo(f"error: {problem.what}\n  fix: {problem.fix}")
    click.echo("It is sound." if report.is_sound else "It is NOT sound.")


def _as_json(report: Report) -> dict[str, object]:
    return {
        "journal": report.label,
        "ok": report.is_sound,
        "schema": report.schema.value,
        "revision": report.revision or None,
        "cluster": report.cluster or None,
        "clusterId": report.cluster_id or None,
        "machines": report.machines,
        "rows": report.rows,
        "problems": [{"what": problem.what, "fix": problem.fix} for problem in report.problems],
        "warnings": report.warnings,
    }
