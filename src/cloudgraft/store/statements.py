"""Reads and writes the tables: plain functions on a connection with an open transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from cloudgraft.sdk.errors import ConflictError
from cloudgraft.store import schema
from cloudgraft.store.databases.filelock import myself
from cloudgraft.store.journal import EventQuery, FencedError, JournalBrokenError
from cloudgraft.store.records import Change, Contents, Event, MachineRecord, Presence, RequestRecord, State
from cloudgraft.store.rows import (
    Reader,
    Seal,
    Values,
    cloud_row,
    declared_row,
    event_row,
    group_row,
    learned_row,
    machine_row,
    pause_row,
    progress_row,
    request_row,
)
from cloudgraft.store.schema import fence

_INSERTS: dict[str, Callable[[Table], sqlite.Insert | postgresql.Insert]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
REQUESTS_KEPT: Final = 86_400.0  # seconds
_NEWEST = 100  # events that are read to find the latest time: more than will be damaged
_NAMED = 3  # machines in a message
_CONFLICT = "nothing was written: another process wrote to the journal, which has other versions of some machines"
_UPDATE_MACHINE = (
    update(schema.machines)
    .where(
        schema.machines.c.name == bindparam("name_"),
        schema.machines.c.version == bindparam("version") - 1,
    )
    .values({column: bindparam(column.name) for column in schema.machines.c if column.name != "name"})
)


class Owner(NamedTuple):
    """The cluster that a journal belongs to. The name is "" until a server with a configuration has opened it."""

    cluster_id: str
    cluster: str


def read_owner(connection: Connection) -> Owner | None:
    """The cluster that the journal belongs to, or None in a journal that is just being made."""
    rows = _all(connection, schema.journal)
    if not rows:
        return None
    _, cluster_id, _, cluster = rows[0]
    return Owner(cluster_id, cluster or "")


def owner_row(owner: Owner, created_at: float) -> Values:
    """The one row of `journal`."""
    row = {"id": 1, "cluster_id": owner.cluster_id, "created_at": created_at, "cluster": owner.cluster or None}
    return Seal.of(schema.journal).sealed(row)


def write_owner(connection: Connection, owner: Owner, created_at: float) -> None:
    """Writes the cluster that owns the journal; replaces a former one."""
    connection.execute(delete(schema.journal))
    connection.execute(insert(schema.journal), [owner_row(owner, created_at)])


def read_contents(connection: Connection) -> Contents:
    """Everything but the events."""
    owner = read_owner(connection)
    if owner is None:
        raise JournalBrokenError("the journal has no cluster id: `cloudgraft db check` says what to do")
    reader = Reader()
    contents = Contents(
        cluster_id=owner.cluster_id,
        machines=[reader.machine(row) for row in _all(connection, schema.machines)],
        groups=[reader.group(row) for row in _all(connection, schema.node_groups)],
        learned=[reader.learned(row) for row in _all(connection, schema.learned)],
        clouds=[reader.cloud(row) for row in _all(connection, schema.clouds)],
        pauses=[reader.pause(row) for row in _all(connection, schema.pauses)],
        requests=[reader.request(row) for row in _all(connection, schema.requests)],
        declared=[reader.declared(row) for row in _all(connection, schema.declared_groups)],
        progress=next((reader.progress(row) for row in _all(connection, schema.progress)), None),
    )
    return replace(contents, latest_at=max(0.0, _latest_time(contents), _latest_event(connection)))


def _latest_time(contents: Contents) -> float:
    """The largest time in any record; 0.0 when there is none."""
    times = [
        time
        for machine in contents.machines
        for time in (machine.requested_at, machine.state_since, machine.ordered_at, machine.attempt_at, machine.gone_at)
    ]
    times += [record.since for record in contents.learned]
    times += [record.adopted_at for record in contents.clouds]
    times += [record.since for record in contents.pauses]
    times += [record.at for record in contents.requests]
    if contents.progress is not None:
        times.append(contents.progress.at)
    return max((time for time in times if time is not None), default=0.0)


def _latest_event(connection: Connection) -> float:
    """The newest event's time. Skips damaged events: a wrong time would set the engine's clock wrong."""
    table, seal = schema.events, Seal.of(schema.events)
    rows = connection.execute(select(table).order_by(table.c.at.desc()).limit(_NEWEST))
    return next((float(row.at) for row in rows if seal.is_sound(row)), 0.0)


def _all(connection: Connection, table: Table) -> Sequence[Sequence[Any]]:
    verified = Seal.of(table).verified
    return [verified(row) for row in connection.execute(select(table).order_by(*table.primary_key))]


def write_change(connection: Connection, change: Change) -> None:
    """Writes all of the change; ConflictError when another process has written a machine meanwhile."""
    if change.machines:
        _write_machines(connection, change.machines)
    if change.removed_groups:
        connection.execute(delete(schema.node_groups).where(schema.node_groups.c.id.in_(change.removed_groups)))
        connection.execute(delete(schema.learned).where(schema.learned.c.group_id.in_(change.removed_groups)))
    if change.resumed:
        gone = [(scope.value, name) for scope, name in change.resumed]
        connection.execute(delete(schema.pauses).where(tuple_(schema.pauses.c.scope, schema.pauses.c.name).in_(gone)))
    _replace(connection, schema.node_groups, [group_row(record) for record in change.groups])
    _replace(connection, schema.learned, [learned_row(record) for record in change.learned])
    _replace(connection, schema.clouds, [cloud_row(record) for record in change.clouds])
    _replace(connection, schema.pauses, [pause_row(record) for record in change.pauses])
    if change.undeclared:
        table = schema.declared_groups
        connection.execute(delete(table).where(table.c.id.in_(change.undeclared)))
    _replace(connection, schema.declared_groups, [declared_row(record) for record in change.declared])
    if change.requests or change.removed_requests:
        _write_requests(connection, change.requests, change.removed_requests)
    if change.progress is not None:
        _replace(connection, schema.progress, [progress_row(change.progress)])
    if change.events:
        seal = Seal.of(schema.events)
        connection.execute(insert(schema.events), [seal.sealed(event_row(event)) for event in change.events])


def _write_requests(
    connection: Connection, records: Sequence[RequestRecord], removed: Sequence[tuple[str, str]]
) -> None:
    """Writes new requests and deletes those older than a day, so that no other code has to."""
    table = schema.requests
    if removed:
        connection.execute(delete(table).where(tuple_(table.c.caller, table.c.key).in_(removed)))
    if records:
        old = max(record.at for record in records) - REQUESTS_KEPT
        connection.execute(delete(table).where(table.c.at < old))
    _replace(connection, table, [request_row(record) for record in records])


def _write_machines(connection: Connection, records: Sequence[MachineRecord]) -> None:
    """Writes any number of machines with two statements. Counts the written rows, so that a missing one is noticed."""
    seal = Seal.of(schema.machines)
    rows = [seal.sealed(machine_row(record)) for record in records]
    new = [row for row in rows if row["version"] == 1]
    known = [{**row, "name_": row["name"]} for row in rows if row["version"] != 1]
    written = 0
    if new:
        statement = _INSERTS[connection.dialect.name](schema.machines).on_conflict_do_nothing()
        written += connection.execute(statement, new, execution_options={"preserve_rowcount": True}).rowcount
    if known:
        written += connection.execute(_UPDATE_MACHINE, known).rowcount
    if written != len(rows):
        raise ConflictError(_CONFLICT)


def conflict_error(connection: Connection, records: Sequence[MachineRecord]) -> ConflictError:
    """The error that names the machines that made a change fail. Needs a transaction after the failed one."""
    table = schema.machines
    names = [record.name for record in records]
    rows = connection.execute(select(table.c.name, table.c.version).where(table.c.name.in_(names)))
    stored: dict[str, int] = {row.name: row.version for row in rows}
    wrong = [record for record in records if stored.get(record.name, 0) != record.version - 1]
    named = ", ".join(
        f"{record.name} (version {stored.get(record.name, 0)}, not {record.version - 1})" for record in wrong[:_NAMED]
    )
    return ConflictError(f"{_CONFLICT}: {named}" if named else _CONFLICT)


def _replace(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Inserts rows, or replaces those of the same key."""
    if not rows:
        return
    keys, seal = [column.name for column in table.primary_key], Seal.of(table)
    statement = _INSERTS[connection.dialect.name](table)
    others = {column.name: statement.excluded[column.name] for column in table.c if column.name not in keys}
    connection.execute(
        statement.on_conflict_do_update(index_elements=keys, set_=others), [seal.sealed(row) for row in rows]
    )


def read_events(connection: Connection, query: EventQuery) -> list[Event]:
    """The newest events that fit, or the oldest after a number; the oldest of them first."""
    table, is_forward = schema.events, query.after is not None
    statement = select(table).order_by(table.c.seq if is_forward else table.c.seq.desc()).limit(query.limit)
    wanted = {table.c.group_id: query.group, table.c.cloud: query.cloud, table.c.machine: query.machine}
    for column, value in wanted.items():
        if value:
            statement = statement.where(column == value)
    if query.kinds:
        statement = statement.where(table.c.kind.in_(query.kinds))
    if query.only_states:
        statement = statement.where(table.c.state.is_not(None))
    if query.since is not None:
        statement = statement.where(table.c.at >= query.since)
    if query.before is not None:
        statement = statement.where(table.c.seq < query.before)
    if query.after is not None:
        statement = statement.where(table.c.seq > query.after)
    reader, verified = Reader(), Seal.of(table).verified
    found = [reader.event(verified(row)) for row in connection.execute(statement)]
    return found if is_forward else found[::-1]


def purge(connection: Connection, *, gone_before: float, events_before: float, limit: int) -> int:
    """Removes old rows, the oldest first, at most ``limit`` of each table; returns how many."""
    machines, events = schema.machines, schema.events
    is_gone = (machines.c.state == State.GONE.value) & (machines.c.presence != Presence.PRESENT.value)
    is_old = is_gone & (machines.c.gone_at < gone_before)
    old_machines = select(machines.c.name).where(is_old).order_by(machines.c.gone_at).limit(limit)
    old_events = select(events.c.seq).where(events.c.at < events_before).order_by(events.c.at).limit(limit)
    removed = connection.execute(delete(machines).where(machines.c.name.in_(old_machines))).rowcount
    removed += connection.execute(delete(events).where(events.c.seq.in_(old_events))).rowcount
    return removed


# -- the fence: which process writes to a SQLite journal ---------------------------------------------------------------
# Locks exclude a second process, but a lock can be lost: its file is removed, or a file system does not support it. So
# a process that opens the journal to write takes a new epoch, and every write checks in its own transaction that the
# epoch is still the writer's. A process that was replaced writes nothing more. PostgreSQL has the lease for this.


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A process's claim to the open journal. Epochs only grow; the holder distinguishes equal ones."""

    epoch: int
    holder: str


def take_fence(connection: Connection) -> Opening:
    """Opens a new epoch: the process of an earlier one writes nothing more."""
    last = connection.execute(select(fence.c.epoch)).scalar() or 0
    opening = Opening(epoch=last + 1, holder=f"{myself()} ({secrets.token_hex(4)})")
    connection.execute(delete(fence))
    connection.execute(insert(fence).values(id=1, epoch=opening.epoch, holder=opening.holder))
    return opening


def check_fence(connection: Connection, opening: Opening) -> None:
    """Raises FencedError when another process has opened the journal since."""
    row = connection.execute(select(fence.c.epoch, fence.c.holder)).one_or_none()
    if row is None or (row.epoch, row.holder) != (opening.epoch, opening.holder):
        holder = row.holder if row is not None else "another process"
        raise FencedError(
            f"the journal was opened by {holder} while this process had it open: this process writes nothing more. "
            "Let one server use it, and restart that one",
            holder=holder,
        )
