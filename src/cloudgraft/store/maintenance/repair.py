"""Repairs a journal with damaged rows: restores what the checksum proves, removes the rest, reports the effects.

Nothing is guessed. A row is restored when the change of a single bit makes it match its checksum of 64 bits; then it is
the row that was written. Every other row that does not match is removed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, insert, select

from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store import schema
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.identity import Configured
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.lease.lease_row import LeaseRow
from cloudgraft.store.lease.no_leader import dismiss_leader, wait_until_no_leader
from cloudgraft.store.maintenance.legality import RowJudge
from cloudgraft.store.migrate import Schema
from cloudgraft.store.rows import CHECKSUM, Seal
from cloudgraft.store.statements import Owner, owner_row, take_fence

_AT_ONCE: Final = 1000
_ALL_BITS: Final = 2**64 - 1
_LISTED: Final = "every cloud is listed, and what proves to be ours is taken in, before anything is created"
_FOLLOWS: Final = {
    schema.machines: f"{_LISTED}; a machine without marks must be adopted again",
    schema.node_groups: "it is made again from the configuration; one that is not configured any more is not served",
    schema.learned: "it is learned again from the group's nodes",
    schema.clouds: "the cloud is listed, and its machines are taken in, before anything is created there",
    schema.pauses: "it is NOT PAUSED any more: pause it again",
    schema.requests: "who asks for the same change again makes it a second time",
    schema.declared_groups: "the group is not declared any more: declare it again",
    schema.progress: "the clock goes on from the latest time in the journal",
    schema.events: "a line of the history is lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A damaged row, what is done about it, and the consequence."""

    what: str
    action: str
    follows: str = ""


@dataclass(slots=True)
class _Plan:
    findings: list[Finding] = field(default_factory=list)
    rows: dict[Table, list[dict[str, Any]]] = field(default_factory=dict)  # of each table that is rewritten
    is_listed_again: bool = False  # machines may be missing: every cloud must be listed again
    refusal: str = ""  # the reason why it cannot be repaired


def repair_journal(database: Database, configured: Configured, *, apply: bool) -> list[Finding]:
    """Finds damage and repairs it. Without ``apply`` nothing is changed, and a server may use the journal.

    PreconditionError when the journal cannot be repaired, with what to do instead.
    """
    lost = database.lost_commits()
    if lost and not apply:
        return [_finding_of_lost(lost)]
    found = database.open(Access.REPAIR if apply else Access.LOOK)
    if found.schema is not Schema.CURRENT:
        raise JournalBrokenError(
            f"the schema of {database.label} is {found.schema.value}: `cloudgraft db check` says what to do"
        )
    is_shared = apply and database.engine.dialect.name == "postgresql"
    unled = wait_until_no_leader(database) if is_shared else None
    with database.transaction(Mode.SNAPSHOT) as connection:
        plan = _planned(database, connection, configured, lost)
    if apply and plan.refusal:
        raise PreconditionError(plan.refusal)
    if apply and plan.findings:
        database.back_up("repair")
        with database.transaction(Mode.WRITE) as connection:
            _keep_others_out(connection, unled)
            plan = _planned(database, connection, configured, lost)  # read again now that no other process writes
            _carry_out(database, connection, plan)
        database.forget_lost_commits()
    return plan.findings


def _keep_others_out(connection: Connection, unled: LeaseRow | None) -> None:
    """Excludes other processes until the transaction ends. ``unled`` is the free lease of a PostgreSQL."""
    if unled is None:
        take_fence(connection)
    else:
        dismiss_leader(connection, unled)


def _planned(database: Database, connection: Connection, configured: Configured, lost: str) -> _Plan:
    plan, judge = _Plan(), RowJudge()
    if lost:
        plan.is_listed_again = True
        plan.findings.append(_finding_of_lost(lost))
    damage = database.integrity(connection)
    if damage:
        plan.is_listed_again = True
        plan.findings.append(
            Finding(
                what=f"the file is damaged: {damage[0]}",
                action="all tables are rewritten from the rows that can be read",
                follows=f"rows may be missing: {_LISTED}",
            )
        )
    _plan_owner(database, connection, configured, plan)
    for table in _FOLLOWS:
        sound, damaged = [], 0
        for row in connection.execute(select(table)):
            kept = _kept(table, row, judge, plan)
            damaged += kept is not row
            sound += [] if kept is None else [_values(table, kept)]
        if damage or damaged:
            plan.rows[table] = sound
    if plan.is_listed_again:
        plan.rows[schema.clouds] = []
    return plan


def _finding_of_lost(lost: str) -> Finding:
    return Finding(
        what=lost,
        action="the journal goes back to the last commit before the damage; a copy is kept beside it (.damaged-…)",
        follows=f"{_LISTED}; changes of configuration, pauses and adoptions that were in those commits are lost. Other "
        "damage is shown once this is done",
    )


def _kept(table: Table, row: Sequence[Any], judge: RowJudge, plan: _Plan) -> Sequence[Any] | None:
    """The row if it is sound, else the restored row, else None."""
    seal = Seal.of(table)
    problem = judge.problem(table, seal.opened(row))
    if seal.is_sound(row) and not problem:
        return row
    restored = None if seal.is_sound(row) else _restored(table, row)
    if restored is not None and not judge.problem(table, seal.opened(restored)):
        plan.findings.append(Finding(what=seal.problem(row), action="restored: one bit had changed"))
        return restored
    plan.findings.append(Finding(what=problem or seal.problem(row), action="removed", follows=_FOLLOWS[table]))
    plan.is_listed_again |= table is schema.machines
    return None


def _plan_owner(database: Database, connection: Connection, configured: Configured, plan: _Plan) -> None:
    """Restores the owner's row, which cannot be removed: without it, it is unknown which machines are ours."""
    table, seal = schema.journal, Seal.of(schema.journal)
    row = connection.execute(select(table)).first()
    if row is None or seal.is_sound(row):
        return
    beside = database.stored_cluster_id()
    by_file = [row[0], beside, *row[2:]] if beside else None
    if (restored := _restored(table, row)) is not None:
        action, plan.rows[table] = "restored: one bit had changed", [_values(table, restored)]
    elif by_file is not None and seal.is_sound(by_file):
        action, plan.rows[table] = "restored from the .cluster-id file", [_values(table, by_file)]
    elif configured.cluster_id:
        owner = Owner(configured.cluster_id, configured.cluster)
        action, plan.rows[table] = "written as the configuration says", [owner_row(owner, 0.0)]
    else:
        action = "cannot be restored"
        plan.refusal = (
            f"{database.label} does not say any more whose it is. Look at the tag cloudgraft-cluster-id of this "
            "cluster's machines, give it as clusterId in the configuration, and repair with --config"
        )
    plan.findings.append(Finding(what=seal.problem(row), action=action, follows=plan.refusal))


def _carry_out(database: Database, connection: Connection, plan: _Plan) -> None:
    """Rewrites whole tables: a damaged index does not find the rows that must be removed."""
    for table, rows in plan.rows.items():
        connection.execute(delete(table))
        for start in range(0, len(rows), _AT_ONCE):
            connection.execute(insert(table), rows[start : start + _AT_ONCE])
    damage = database.integrity(connection)
    if damage:
        raise PreconditionError(
            f"{database.label} cannot be repaired ({damage[0]}), and was left as it was: put a backup in its place, or "
            "move it away but leave its .cluster-id file; cloudgraft then takes in its machines from the clouds"
        )


def _values(table: Table, row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((column.name for column in table.c), row, strict=True))


def _restored(table: Table, row: Sequence[Any]) -> Sequence[Any] | None:
    """The row with one bit changed that matches its checksum; None when there is none."""
    seal, at = Seal.of(table), [column.name for column in table.c].index(CHECKSUM)
    stored, expected = row[at], seal.expected(row)
    if isinstance(stored, int) and ((stored ^ expected) & _ALL_BITS).bit_count() == 1:
        return (*row[:at], expected, *row[at + 1 :])
    for place, value in enumerate(row):
        if place == at:
            continue
        for other in _neighbours(value):
            candidate = (*row[:place], other, *row[place + 1 :])
            if seal.is_sound(candidate):
                return candidate
    return None


def _neighbours(value: object) -> Iterator[object]:
    """Every value that differs in one bit as it is stored."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value ^ (1 << bit) for bit in range(63))
    elif isinstance(value, float):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        yield from (struct.unpack("<d", struct.pack("<Q", bits ^ (1 << bit)))[0] for bit in range(64))
    elif isinstance(value, str):
        data = bytearray(value.encode("utf-8", "surrogateescape"))
        for place in range(len(data) * 8):
            data[place // 8] ^= 1 << place % 8
            yield data.decode("utf-8", "surrogateescape")
            data[place // 8] ^= 1 << place % 8
