"""A whole journal as lines of JSON: for a backup that can be read, and for the way from SQLite to PostgreSQL.

The first line tells what it is, the last one that nothing is missing; each line between is a row of a table. No
options of clouds are in a journal, and with them no credentials; the settings of machines are, as they were configured.
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
from cloudgraft.store import leader, schema, statements
from cloudgraft.store.database import Access, Database, Mode
from cloudgraft.store.identity import check_cluster_id
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.lease_watch import LeaseRow
from cloudgraft.store.legality import RowJudge
from cloudgraft.store.migrate import Schema
from cloudgraft.store.rows import IllegalRowError
from cloudgraft.store.unled import in_use, wait_until_unled

__all__ = ["export_lines", "import_lines"]

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
# Columns that hold JSON; in a line they are not text in text.
_JSON = {"settings", "tags", "spec", "facts", "data", "answer", "document"}
_LEASE_SECONDS = 60.0  # longer than a statement may take; the row is locked anyhow until all is done


def export_lines(database: Database) -> Iterator[str]:
    """All of a journal as of one moment, also while a server is using it."""
    found = database.open(Access.LOOK)
    if found.schema is not Schema.CURRENT:
        raise JournalBrokenError(
            f"the schema of {database.label} is {found.schema.value}: `cloudgraft db check` tells what to do"
        )
    with database.transaction(Mode.SNAPSHOT) as connection:
        cluster_id, rows = statements.read_cluster_id(connection), 0
        if cluster_id is None:
            raise JournalBrokenError(f"{database.label} has no cluster id yet: `cloudgraft db upgrade` gives it one")
        yield _line({"cloudgraft": "journal", "format": _FORMAT, "schema": schema.HEAD, "clusterId": cluster_id})
        for table in _TABLES.values():
            for row in _rows(connection, table):
                yield _line({"table": table.name, "row": _unpack(row)})
                rows += 1
        yield _line({"end": True, "rows": rows})


def _rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    if table is not schema.events:
        yield from map(dict, connection.execute(select(table).order_by(*table.primary_key)).mappings())
        return
    last = -1
    while True:  # there may be more events than memory has room for
        statement = select(table).where(table.c.seq > last).order_by(table.c.seq).limit(_AT_ONCE)
        page = connection.execute(statement).mappings().all()
        yield from map(dict, page)
        if len(page) < _AT_ONCE:
            return
        last = page[-1]["seq"]


def import_lines(database: Database, lines: Iterable[str]) -> int:
    """Fills an empty journal, which is made when it is not there: all of it or nothing. Returns the number of rows.

    JournalLockedError while a server uses it.
    """
    numbered = enumerate(lines, start=1)
    cluster_id = _head(numbered)
    database.open(Access.SERVE)
    beside = database.stored_cluster_id()
    # In PostgreSQL: makes sure that nobody leads, nor will until we are done.
    unled = wait_until_unled(database) if database.engine.dialect.name == "postgresql" else None
    with database.transaction(Mode.WRITE) as connection:
        claim = _lead(connection, unled) if unled else None
        _refuse_unless_empty(connection, database)
        statements.write_cluster_id(connection, cluster_id, time.time())
        rows = _fill(connection, numbered)
        if claim is not None:
            leader.give_up(connection, claim)
    if beside != cluster_id:
        database.keep_cluster_id(cluster_id)
    return rows


def _head(numbered: Iterator[tuple[int, str]]) -> str:
    _, first = next(numbered, (0, ""))
    head = _parse(1, first)
    if head.get("cloudgraft") != "journal" or head.get("format") != _FORMAT:
        raise InvalidArgumentError("this is not an export of a journal: `cloudgraft db export` makes one")
    if head.get("schema") != schema.HEAD:
        raise InvalidArgumentError(
            f"this export is of schema {head.get('schema')}, and this release has {schema.HEAD}: make the export with "
            "the same release"
        )
    return check_cluster_id(str(head.get("clusterId", "")))


def _lead(connection: Connection, unled: LeaseRow) -> leader.Claim:
    holder = f"an import, process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"
    claim = leader.take(connection, unled, holder, _LEASE_SECONDS)
    if claim is None:
        raise in_use(leader.look(connection).row.holder)
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
        raise InvalidArgumentError(f"line {number} tells of {expected} rows, but there are {found}")
    if next(numbered, None) is not None:
        raise InvalidArgumentError(f"there is more after the end in line {number}")


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)
        rows.clear()


def _go_on_counting(connection: Connection) -> None:
    """Rows were written with their numbers; PostgreSQL has to be told where to go on. SQLite sees it by itself."""
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
    """A table's name and a row for it, after a look at whether it can be one."""
    table, row = _TABLES.get(str(content.get("table"))), content.get("row")
    if table is None or not isinstance(row, dict):
        raise InvalidArgumentError(f"line {number} is not a row of a journal")
    names = [column.name for column in table.c]
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
