"""Exports and imports a whole journal as lines of JSON: a readable backup, and the way from SQLite to PostgreSQL.

The first line says what the file is, the last one that nothing is missing; each line between is a row of a table. A
journal has no options of clouds, and so no credentials. It has the settings of machines, as they were configured.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, Table, insert, select, text

from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.store import schema, statements
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.identity import Configured, check_cluster_id
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.lease import lease_row
from cloudgraft.store.lease.lease_row import LeaseRow
from cloudgraft.store.lease.no_leader import in_use, wait_until_no_leader
from cloudgraft.store.maintenance.legality import RowJudge
from cloudgraft.store.migrate import Schema
from cloudgraft.store.rows import IllegalRowError, Seal, columns
from cloudgraft.store.statements import Owner, take_fence

_FORMAT = 1
_AT_ONCE = 1000  # rows per statement
_TABLES = {
    table.name: table
    for table in (
        schema.node_groups,
        schema.learned,
        schema.clouds,
        schema.pauses,
        schema.requests,
        schema.declared_groups,
        schema.progress,
        schema.machines,
        schema.events,
    )
}
# Columns that hold JSON; an export has them as JSON values, not as strings.
_JSON = {"settings", "tags", "spec", "facts", "data", "answer", "document"}
_LEASE_SECONDS = 60.0  # longer than a statement may take; the row is locked anyhow until all is done


def export_lines(database: Database) -> Iterator[str]:
    """All of a journal as of one moment, also while a server is using it."""
    found = database.open(Access.LOOK)
    if found.schema is not Schema.CURRENT:
        raise JournalBrokenError(
            f"the schema of {database.label} is {found.schema.value}: `cloudgraft db check` says what to do"
        )
    with database.transaction(Mode.SNAPSHOT) as connection:
        owner, rows = statements.read_owner(connection), 0
        if owner is None:
            raise JournalBrokenError(f"{database.label} has no cluster id yet: `cloudgraft db upgrade` gives it one")
        head = {"cluster": owner.cluster, "clusterId": owner.cluster_id}
        yield _line({"cloudgraft": "journal", "format": _FORMAT, "schema": schema.HEAD, **head})
        for table in _TABLES.values():
            for row in _rows(connection, table):
                yield _line({"table": table.name, "row": _unpack(row)})
                rows += 1
        yield _line({"end": True, "rows": rows})


def _rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    seal, names = Seal.of(table), columns(table)
    statement = select(table).order_by(*table.primary_key)
    if table is not schema.events:
        for row in connection.execute(statement):
            yield dict(zip(names, seal.verified(row), strict=True))
        return
    last = -1
    while True:  # there may be more events than memory has room for
        page = connection.execute(statement.where(table.c.seq > last).limit(_AT_ONCE)).all()
        for row in page:
            yield dict(zip(names, seal.verified(row), strict=True))
        if len(page) < _AT_ONCE:
            return
        last = page[-1].seq


def import_lines(database: Database, lines: Iterable[str], configured: Configured | None = None) -> int:
    """Fills an empty journal, and creates it if missing: all of it or nothing. Returns the number of rows.

    The export's cluster must be the one of the journal, of the file beside it and of the configuration, where they say
    one; `clusterId` in the configuration decides otherwise. JournalLockedError while a server uses it.
    """
    numbered = enumerate(lines, start=1)
    exported = _head(numbered)
    database.open(Access.SERVE)
    beside = database.stored_cluster_id()
    # In PostgreSQL: makes sure that no replica leads until we are done.
    unled = wait_until_no_leader(database) if database.engine.dialect.name == "postgresql" else None
    with database.transaction(Mode.WRITE) as connection:
        claim = None
        if unled is not None:
            claim = _lead(connection, unled)
        else:
            take_fence(connection)
        _refuse_unless_empty(connection, database)
        known = [Owner(beside or "", ""), statements.read_owner(connection)]
        owner = _importing(database.label, exported, [one for one in known if one], configured or Configured())
        statements.write_owner(connection, owner, time.time())
        rows = _fill(connection, numbered)
        if claim is not None:
            lease_row.give_up(connection, claim)
    if beside != owner.cluster_id:
        database.keep_cluster_id(owner.cluster_id)
    return rows


def _importing(label: str, exported: Owner, known: list[Owner], configured: Configured) -> Owner:
    """The cluster of the imported journal. ``known`` is from the journal and the file beside it."""
    given = Owner(configured.cluster_id, configured.cluster)
    # An operator who gives the id means that cluster, even after a rename; what else is known does not count then.
    sayings = [Owner(given.cluster_id, "")] if given.cluster_id else [given, *known]
    for cluster_id, cluster in sayings:
        is_other = cluster and exported.cluster and cluster != exported.cluster
        if is_other or (cluster_id and cluster_id != exported.cluster_id):
            raise PreconditionError(
                f"this is an export of the cluster {exported.cluster or 'without a name'} (cluster id "
                f"{exported.cluster_id}), but {label} is meant for {cluster or 'the cluster id'} {cluster_id}: import "
                "that cluster's export; or, if this is the right one, say so with --config and "
                f"clusterId: {exported.cluster_id} in the configuration"
            )
    return Owner(exported.cluster_id, given.cluster or exported.cluster)


def _head(numbered: Iterator[tuple[int, str]]) -> Owner:
    _, first = next(numbered, (0, ""))
    head = _parse(1, first)
    if head.get("cloudgraft") != "journal" or head.get("format") != _FORMAT:
        raise InvalidArgumentError("this is not an export of a journal: `cloudgraft db export` makes one")
    if head.get("schema") != schema.HEAD:
        raise InvalidArgumentError(
            f"this export is of schema {head.get('schema')}, and this release has {schema.HEAD}: make the export with "
            "the same release"
        )
    return Owner(check_cluster_id(str(head.get("clusterId", ""))), str(head.get("cluster") or ""))


def _lead(connection: Connection, unled: LeaseRow) -> lease_row.Claim:
    holder = f"an import, process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"
    claim = lease_row.take(connection, unled, holder, _LEASE_SECONDS)
    if claim is None:
        raise in_use(lease_row.look(connection).row.holder)
    return claim


def _refuse_unless_empty(connection: Connection, database: Database) -> None:
    full = [table.name for table in _TABLES.values() if connection.execute(select(table).limit(1)).first()]
    if full:
        raise PreconditionError(
            f"{database.label} is not empty (it has {', '.join(full)}): import goes into a new journal only"
        )


def _fill(connection: Connection, numbered: Iterator[tuple[int, str]]) -> int:
    waiting: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    judge = RowJudge()
    for number, line in numbered:
        content = _parse(number, line)
        if content.get("end"):
            for name, left in waiting.items():
                _insert(connection, _TABLES[name], left)
            rows = number - 2  # all lines but the first and this one
            _check_end(numbered, number, expected=content.get("rows"), found=rows)
            _go_on_counting(connection)
            return rows
        name, row = _pack(number, content, judge)
        waiting[name].append(row)
        if len(waiting[name]) >= _AT_ONCE:
            _insert(connection, _TABLES[name], waiting[name])
    raise InvalidArgumentError("the end is missing: this is only a part of an export")


def _check_end(numbered: Iterator[tuple[int, str]], number: int, *, expected: object, found: int) -> None:
    if expected != found:
        raise InvalidArgumentError(f"line {number} says {expected} rows, but there are {found}")
    if next(numbered, None) is not None:
        raise InvalidArgumentError(f"there is more after the end in line {number}")


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        seal = Seal.of(table)
        connection.execute(insert(table), [seal.sealed(row) for row in rows])
        rows.clear()


def _go_on_counting(connection: Connection) -> None:
    """Sets PostgreSQL's sequence behind the imported rows, which have their numbers. SQLite does this by itself."""
    if connection.dialect.name == "postgresql":
        connection.execute(
            text("SELECT setval(pg_get_serial_sequence('events', 'seq'), (SELECT max(seq) FROM events))")
        )


def _unpack(row: dict[str, Any]) -> dict[str, Any]:
    try:
        return {name: json.loads(value) if name in _JSON else value for name, value in row.items()}
    except (ValueError, TypeError) as error:
        raise IllegalRowError(f"a row cannot be exported: {error}") from error


def _pack(number: int, content: dict[str, Any], judge: RowJudge) -> tuple[str, dict[str, Any]]:
    """A table's name and a validated row for it."""
    table, row = _TABLES.get(str(content.get("table"))), content.get("row")
    if table is None or not isinstance(row, dict):
        raise InvalidArgumentError(f"line {number} is not a row of a journal")
    names = columns(table)
    if sorted(row) != sorted(names):
        raise InvalidArgumentError(f"line {number}: a row of {table.name} has {', '.join(names)}")
    packed = {name: json.dumps(value, separators=(",", ":")) if name in _JSON else value for name, value in row.items()}
    problem = judge.problem(table, [packed[name] for name in names])
    if problem:
        raise InvalidArgumentError(f"line {number}: {problem}")
    return table.name, packed


def _parse(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidArgumentError(f"line {number} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"line {number} is not a JSON object")
    return value


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
