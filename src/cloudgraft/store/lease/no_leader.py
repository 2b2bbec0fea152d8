"""Makes sure that no replica leads, for commands that change a whole journal in PostgreSQL."""

from __future__ import annotations

import logging
import time
from typing import Final

from sqlalchemy import Connection, inspect, text

from cloudgraft.store.databases.database import Database
from cloudgraft.store.journal import JournalLockedError
from cloudgraft.store.lease.lease_row import LeaseRow, LeaseWatch, look
from cloudgraft.store.schema import lease

_log = logging.getLogger("cloudgraft.store")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LOOKS: Final = 30  # in the length of a lease; a leader renews three times


def wait_until_no_leader(database: Database) -> LeaseRow:
    """Waits for the lease to be free and returns its row. JournalLockedError as soon as its holder renews it.

    A leader that crashed has not released its lease. Only the missing renewals show that it is gone, so this may take
    as long as the lease. The row may be taken only as it is returned here.
    """
    watch, first = LeaseWatch(0.0), None
    while True:
        with database.transaction() as connection:
            row = look(connection).row
        watch.see(row, time.clock_gettime(_CLOCK))
        if first is None:
            first = row
            if row.holder:
                _log.info("waiting for up to %g s to see whether %s still leads", row.seconds, row.holder)
        if row.holder and row != first:
            raise in_use(row.holder)
        left = watch.seconds_left(time.clock_gettime(_CLOCK))
        if left <= 0:
            return row
        time.sleep(min(left, row.seconds / _LOOKS))


def dismiss_leader(connection: Connection, watched: LeaseRow | None) -> None:
    """Deposes the last leader, in a transaction that keeps every replica from leading until it ends.

    JournalLockedError when a replica has begun to lead meanwhile. A leader that is only frozen is fenced by this.
    """
    if not inspect(connection).has_table(lease.name):
        return
    if watched is not None:
        row = look(connection, lock=True).row
        if row != watched:
            raise in_use(row.holder)
    elif holder := _holder_by_database_clock(connection):
        raise in_use(holder)
    connection.execute(text("UPDATE lease SET holder = ''"))


def in_use(holder: str) -> JournalLockedError:
    """The error that says who leads."""
    return JournalLockedError(f"the journal is in use by {holder or 'another process'}: stop all replicas first")


def has_counter(connection: Connection) -> bool:
    """Whether the lease is one of this release: a counter. Before schema 0007 it ended by the database's clock."""
    inspector = inspect(connection)
    if not inspector.has_table(lease.name):
        return False
    return lease.c.renewals.name in {column["name"] for column in inspector.get_columns(lease.name)}


def _holder_by_database_clock(connection: Connection) -> str | None:
    statement = "SELECT holder FROM lease WHERE expires_at > extract(epoch FROM clock_timestamp()) FOR UPDATE"
    return connection.execute(text(statement)).scalar()
