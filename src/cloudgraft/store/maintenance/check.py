"""Checks a whole journal for damage, and counts its records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import Connection, Table, func, select

from cloudgraft.store import schema
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.identity import Configured, owner_of
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.maintenance.legality import RowJudge
from cloudgraft.store.migrate import Schema, SchemaState
from cloudgraft.store.records import State
from cloudgraft.store.rows import IllegalRowError, Seal
from cloudgraft.store.statements import Owner, read_owner

_MOST = 20  # problems of one kind that are listed
_AT_ONCE = 1000
_TABLES = (
    schema.node_groups,
    schema.learned,
    schema.clouds,
    schema.pauses,
    schema.requests,
    schema.declared_groups,
    schema.progress,
    schema.events,
)
_SCHEMA_FIXES = {
    Schema.EMPTY: "start cloudgraft on it, or import an export into it",
    Schema.OLDER: "stop cloudgraft, and run `cloudgraft db upgrade`",
    Schema.NEWER: "use the newer release of cloudgraft that wrote it",
    Schema.FOREIGN: "it belongs to another program: name another place for the journal",
}
_DAMAGE_FIX = (
    "stop cloudgraft; put a backup in its place, or move the journal away (not its .cluster-id file) and start again: "
    "cloudgraft then takes in its machines from the clouds before it creates anything"
)
_ROW_FIX = (
    "stop cloudgraft; put a backup in its place, or run `cloudgraft db repair`: it shows what it would restore or "
    "remove, and what follows"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem, and what to do about it."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found."""

    label: str
    schema: Schema
    revision: str
    cluster_id: str = ""
    cluster: str = ""
    machines: dict[str, int] = field(default_factory=dict)  # by state
    rows: dict[str, int] = field(default_factory=dict)  # by table, without the machines
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether a server can work with it."""
        return not self.problems


def check_journal(database: Database, configured: Configured | None = None) -> Report:
    """Reads all of it, also while a server is using it; changes nothing."""
    found = database.open(Access.LOOK)
    if found.schema is not Schema.CURRENT:
        what = f"its schema is {found.schema.value} ({found.revision or 'none'}; this release works with {schema.HEAD})"
        problem = Problem(what=what, fix=_SCHEMA_FIXES[found.schema])
        return Report(label=database.label, schema=found.schema, revision=found.revision, problems=[problem])
    with database.transaction(Mode.SNAPSHOT) as connection:
        return _report(database, connection, found, configured or Configured())


def _report(database: Database, connection: Connection, found: SchemaState, configured: Configured) -> Report:
    problems = [Problem(what=what, fix=_DAMAGE_FIX) for what in database.integrity(connection)[:_MOST]]
    owner, wrong = _owner(database, connection, configured)
    problems += wrong
    illegal = _illegal_rows(connection) + _doubles(connection)
    if len(illegal) > _MOST:
        illegal[_MOST:] = [f"and {len(illegal) - _MOST} more rows"]
    problems += [Problem(what=what, fix=_ROW_FIX) for what in illegal]
    table = schema.machines
    by_state = connection.execute(select(table.c.state, func.count()).group_by(table.c.state))
    states = Counter[str]({row[0]: row[1] for row in by_state})
    return Report(
        label=database.label,
        schema=found.schema,
        revision=found.revision,
        cluster_id=owner.cluster_id,
        cluster=owner.cluster,
        machines={state.value: states[state.value] for state in State},
        rows={table.name: _count(connection, table) for table in _TABLES},
        problems=problems,
        warnings=database.warnings(connection),
    )


def _owner(database: Database, connection: Connection, configured: Configured) -> tuple[Owner, list[Problem]]:
    """The cluster that the journal belongs to, and problems with that."""
    no_owner = Owner("", "")
    try:
        owner = read_owner(connection)
    except IllegalRowError as error:
        return no_owner, [Problem(what=error.problem, fix=_ROW_FIX)]
    if owner is None:
        return no_owner, [Problem(what="it has no cluster id", fix="run `cloudgraft db upgrade`: it gives it one")]
    try:
        owner_of(database.label, owner, database.stored_cluster_id(), configured)
    except JournalBrokenError as error:
        return owner, [Problem(what=error.message, fix="a server does not start on it until they agree")]
    return owner, []


def _illegal_rows(connection: Connection) -> list[str]:
    judge, found = RowJudge(), []
    for table in (schema.machines, *_TABLES):
        seal = Seal.of(table)
        for page in connection.execute(select(table)).partitions(_AT_ONCE):
            for row in page:
                problem = judge.problem(table, seal.opened(row))
                if problem or not seal.is_sound(row):
                    found.append(problem or seal.problem(row))
    return found


def _doubles(connection: Connection) -> list[str]:
    """Finds records that stand for the same machine of the cloud."""
    table = schema.machines
    statement = (
        select(table.c.cloud, table.c.machine_id, func.min(table.c.name), func.max(table.c.name))
        .where(table.c.machine_id != "", table.c.state != State.GONE.value)
        .group_by(table.c.cloud, table.c.machine_id)
        .having(func.count() > 1)
    )
    return [
        f"machines {first} and {last} both stand for {machine_id} in {cloud}"
        for cloud, machine_id, first, last in connection.execute(statement)
    ]


def _count(connection: Connection, table: Table) -> int:
    return connection.execute(select(func.count()).select_from(table)).scalar_one()
