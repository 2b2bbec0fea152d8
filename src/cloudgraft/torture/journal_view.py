"""Reads a journal from outside, whether a server has it open or not."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, select

from cloudgraft.app.journals import database_from
from cloudgraft.config import Config
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.migrate import Schema
from cloudgraft.store.records import Event, MachineRecord
from cloudgraft.store.schema import lease
from cloudgraft.store.statements import read_contents, read_events, read_owner

_MOST_EVENTS = 100_000
_LONGEST_LEASE = 30.0  # seconds for which a lease is watched


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalView:
    """The machines and events of a journal at one moment."""

    machines: Mapping[str, MachineRecord] = field(default_factory=dict)  # by name
    events: Sequence[Event] = ()
    cluster_id: str = ""

    def names(self) -> dict[str, str]:
        """The machine of each id that the autoscaler may know."""
        ids = {record.placeholder: record.name for record in self.machines.values()}
        return ids | {record.provider_id: record.name for record in self.machines.values() if record.provider_id}


@contextmanager
def open_to_look(database: Database) -> Iterator[Connection | None]:
    """The tables of a journal; None when there are none yet."""
    try:
        if database.open(Access.LOOK).schema is not Schema.CURRENT:
            yield None
            return
        with database.transaction(Mode.SNAPSHOT) as connection:
            yield connection
    finally:
        database.close()


def read_journal(path: Path) -> JournalView | None:
    """The journal of a run; None when it cannot be read at this moment."""
    try:
        with open_to_look(SqliteDatabase(path)) as connection:
            return _view(connection)
    except CloudgraftError:  # it is being made, or its server was killed while we looked
        return None


def _view(connection: Connection | None, *, with_events: bool = True) -> JournalView | None:
    if connection is None or read_owner(connection) is None:
        return None
    contents = read_contents(connection)
    machines = {record.name: record for record in contents.machines}
    events = read_events(connection, EventQuery(limit=_MOST_EVENTS)) if with_events else ()
    return JournalView(machines=machines, events=events, cluster_id=contents.cluster_id)


# -- the user's own ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJournal:
    """What is known of the journal of the user's own server."""

    view: JournalView | None = None  # None: there is none, or it is empty
    server: str = ""  # the server that has it open
    trouble: str = ""  # why it cannot be read


def read_own(config: Config) -> OwnJournal:
    """Reads the journal that a configuration names; changes nothing in it."""
    path = config.store.path
    try:
        server = _holder(path) if path is not None else _leader(config)
        with open_to_look(database_from(config)) as connection:
            return OwnJournal(view=_view(connection, with_events=False), server=server)
    except NotFoundError:
        return OwnJournal()
    except CloudgraftError as error:
        return OwnJournal(trouble=error.message)


def _holder(path: Path) -> str:
    """The process that has locked a SQLite journal; empty when there is none."""
    lock = Path(f"{path.resolve()}.lock")
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released when the file is closed
            return ""
    except FileNotFoundError:
        return ""
    except OSError:
        return lock.read_text("utf-8", "replace").strip() or "another process"


def _leader(config: Config) -> str:
    """The leader of a PostgreSQL journal: the holder of a lease that is still renewed."""
    first = _lease(config)
    if first is None or not first[0]:
        return ""
    time.sleep(min(_LONGEST_LEASE, config.store.lease_duration.total_seconds()))
    return "" if _lease(config) == first else str(first[0])


def _lease(config: Config) -> tuple[object, ...] | None:
    with open_to_look(database_from(config)) as connection:
        if connection is None:
            return None
        row = connection.execute(select(lease.c.holder, lease.c.epoch, lease.c.renewals)).first()
        return tuple(row) if row is not None else None
