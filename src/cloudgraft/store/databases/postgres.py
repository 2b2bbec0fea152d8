"""Keeps a database in PostgreSQL, for several replicas. Of the replicas of a journal, one leads."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, QueuePool, RootTransaction, create_engine, text
from sqlalchemy.exc import DBAPIError

from cloudgraft.sdk.common.extras import check_installed
from cloudgraft.sdk.errors import CloudgraftError, InternalError
from cloudgraft.store import migrate
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.databases.layout import Layout
from cloudgraft.store.journal import JournalBrokenError, JournalUnavailableError
from cloudgraft.store.lease.lease_row import REPLICA, LeaseRow
from cloudgraft.store.lease.no_leader import dismiss_leader, has_counter, wait_until_no_leader
from cloudgraft.store.migrate import JOURNAL, Schema, SchemaState
from cloudgraft.store.schema import lease

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger("cloudgraft.store")
_CONNECTING: Final[dict[str, Any]] = {
    "client_encoding": "utf8",
    "connect_timeout": 3,
    "target_session_attrs": "read-write",  # of several hosts, the one that can be written to
    # A host that vanished without closing its connection is noticed within about ten seconds.
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# A leader that stops in the middle of a transaction holds the lease row; the server ends it after this time. Not
# always: its limits do not apply between the messages of a pipeline, nor while it sends. See end_silent_holders.
_HURRIED: Final = "-c statement_timeout=5000 -c lock_timeout=3000 -c idle_in_transaction_session_timeout=5000"
_PATIENT: Final = "-c statement_timeout=0 -c lock_timeout=3000 -c idle_in_transaction_session_timeout=0"
# The server too ends the session of a host that vanished, and with it the session's locks. Its default is two hours.
_NOTICE: Final = "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
# A commit must be on the disk of at least one server. A setting that is stronger than "on" is left alone.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
_DAMAGE: Final = ("XX001", "XX002")
_SCHEMA_WRONG: Final = ("42P01", "42703")
# A refused connection has no error code, only text.
_REFUSALS: Final = {
    "authentication": "look at the user, its password and pg_hba.conf",
    "pg_hba.conf": "look at the user, its password and pg_hba.conf",
    'role "': "create the user, or name another",
    'database "': "create the database, or name another",
}
_ADVICE: Final = {
    "42501": "the user must be allowed to read, write and create tables in its schema",
    "3F000": "the user must be allowed to read, write and create tables in its schema",
    "53100": "the server's disk is full: make room, and it goes on by itself",
    "25006": "this server is a standby; it goes on once the address leads to a server that can be written to",
    "57014": "the server is overloaded, or another session holds a lock",
    "55P03": "another session holds a lock",
}
# Classes of transient errors: connection, resources, operator, locks, wrong password, no such database, standby.
_PASSING: Final = ("08", "53", "57", "55", "40", "28", "3D", "25", "58", "42501", "3F000")


class PostgresDatabase(Database):
    """One connection to a PostgreSQL, made again whenever it breaks.

    ``patient``: for work that may take long, such as an import, and that no caller waits for.
    """

    def __init__(self, address: PostgresAddress, *, layout: Layout = JOURNAL, patient: bool = False) -> None:
        check_installed(f"a {layout.noun} in PostgreSQL", "psycopg", extra="postgresql")
        self.layout = layout
        self._address = address
        self._options = f"{_PATIENT if patient else _HURRIED} {_NOTICE}"
        self._application = "cloudgraft db" if patient else REPLICA
        self._line = _Line()
        self.engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,  # after a restart of the server, the first call already works
            hide_parameters=True,
        )

    @property
    def label(self) -> str:
        """The address, without the password."""
        return str(self._address)

    def open(self, access: Access) -> SchemaState:
        """See :class:`Database`."""
        unled = self._wait_until_no_leader() if access is Access.UPGRADE else None
        with self.transaction(Mode.WRITE) as connection:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            self._check_server(connection)
            if access in (Access.LOOK, Access.REPAIR):
                return migrate.look(connection, self.layout)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": self.layout.lock})
            found = migrate.look(connection, self.layout)
            if found.schema is Schema.OLDER and access is Access.UPGRADE and self._has_lease:
                dismiss_leader(connection, unled)
            self._make_current(connection, found, access)
            return found

    def close(self) -> None:
        """See :class:`Database`."""
        self.engine.dispose()
        self._line.drop()

    def cut(self) -> None:
        """Breaks the connection: a call that waits for an answer on it gets an error."""
        self._line.cut()

    def failure(self, error: DBAPIError, *, committing: bool) -> CloudgraftError:
        """See :class:`Database`."""
        state = getattr(error.orig, "sqlstate", None) or ""
        reason = " ".join(str(error.orig).split())
        is_lost = error.connection_invalidated or not state or state.startswith(("08", "57P"))
        if state in _DAMAGE:
            return self.damaged(reason)
        if state in _SCHEMA_WRONG:
            return JournalBrokenError(
                f"{self.label} lacks a table or column of the {self.layout.noun}: {reason}; {self.layout.check}"
            )
        if is_lost or state.startswith(_PASSING):
            message = f"cannot use the {self.layout.noun} {self.label}: {reason}: {_advice(state, reason)}"
            return JournalUnavailableError(message, is_ambiguous=committing and is_lost)
        return InternalError(f"the {self.layout.noun} {self.label} refused a statement: {reason}")

    def damaged(self, reason: object) -> JournalBrokenError:
        """See :class:`Database`."""
        return JournalBrokenError(f"{self.label} reports damaged data: {reason}; restore a backup of the database")

    def integrity(self, connection: Connection) -> list[str]:
        """See :class:`Database`. PostgreSQL checks its pages itself whenever it reads them."""
        return []

    def warnings(self, connection: Connection) -> list[str]:
        """See :class:`Database`."""
        if connection.execute(text("SHOW fsync")).scalar() == "off":
            return [f"the server runs with fsync=off: a loss of power can destroy the {self.layout.noun}; set it to on"]
        return []

    def stored_cluster_id(self) -> str | None:
        """See :class:`Database`. PostgreSQL has no such place."""
        return None

    def keep_cluster_id(self, cluster_id: str) -> None:
        """See :class:`Database`. PostgreSQL has no such place."""

    def _begin(self, connection: Connection, mode: Mode) -> RootTransaction:
        if mode is Mode.SNAPSHOT:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        return connection.begin()

    def _check_server(self, connection: Connection) -> None:
        encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise JournalBrokenError(
                f"{self.label} is encoded in {encoding}: create the database again with ENCODING 'UTF8'"
            )
        for problem in self.warnings(connection):
            _log.warning("%s", problem, extra={self.layout.noun: self.label})

    def _make_current(self, connection: Connection, found: SchemaState, access: Access) -> None:
        if found.schema is Schema.EMPTY:
            migrate.create(connection, self.layout)
        elif found.schema is Schema.FOREIGN:
            raise JournalBrokenError(
                f"{self.label} has tables of another program with the names of ours: use a database of its own"
            )
        elif found.schema is Schema.NEWER:
            raise JournalBrokenError(
                f"{self.label} was written by a newer cloudgraft (schema {found.revision}, this one knows "
                f"{self.layout.head}): "
                "upgrade this replica"
            )
        elif found.schema is Schema.OLDER and access is Access.UPGRADE:
            migrate.upgrade(connection, layout=self.layout)
        elif found.schema is Schema.OLDER:
            raise JournalBrokenError(
                f"{self.label} is of an older cloudgraft (schema {found.revision}, this one needs {self.layout.head}): "
                f"{self.layout.upgrade}"
            )

    @property
    def _has_lease(self) -> bool:
        return lease.name in self.layout.metadata.tables

    def _wait_until_no_leader(self) -> LeaseRow | None:
        """The row of the free lease before an upgrade; None where there is no lease of this release to watch."""
        with self.transaction() as connection:
            is_older = migrate.look(connection, self.layout).schema is Schema.OLDER
            if not (is_older and self._has_lease and has_counter(connection)):
                return None
        return wait_until_no_leader(self)

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg  # noqa: PLC0415 - an extra; see __init__

        parameters: dict[str, Any] = {
            **self._address.parameters(),
            **_CONNECTING,
            "application_name": self._application,
            "options": self._options,
        }
        connection = psycopg.connect(**parameters)
        try:
            self._line.hold(connection.fileno())
            connection.execute(_DURABLE)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection


def _advice(state: str, reason: str) -> str:
    refusal = reason.partition("FATAL: ")[2] if not state else ""
    found = next((advice for words, advice in _REFUSALS.items() if words in refusal), "")
    return found or _ADVICE.get(state, "it goes on by itself once the server answers")


class _Line:
    """Holds a second handle on the current connection's socket, so that another thread can break it.

    A server that hangs without closing its connections would block the database's thread for ever: its own time limits
    hang with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def hold(self, handle: int) -> None:
        """Follows a new connection."""
        copy = socket.socket(fileno=os.dup(handle))
        with self._lock:
            old, self._socket = self._socket, copy
        if old is not None:
            old.close()

    def cut(self) -> None:
        """Breaks it."""
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Forgets it."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
