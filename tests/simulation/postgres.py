"""A simulated PostgreSQL that replicas share: one SQLite file behind connections that stall, break and fail over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from unittest import mock

from sqlalchemy import Connection, func

from cloudgraft.store.databases.database import Mode
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import JournalUnavailableError
from tests.simulation.determinism import EPOCH
from tests.simulation.loop import VirtualLoop


class SimPostgres:
    """The server. A restart and a failover each make it another run of a server."""

    def __init__(self, loop: VirtualLoop, directory: Path) -> None:
        self.away_until = 0.0
        self.wall_offset = 0.0
        self.runs = 1
        self.path = directory / "postgres-1.db"
        self._loop = loop
        self._directory = directory
        self._standby: Path | None = None

    @property
    def is_away(self) -> bool:
        return self._loop.time() < self.away_until

    def now(self) -> float:
        """What its own wall clock shows."""
        return EPOCH + self._loop.time() + self.wall_offset

    def cut_off_standby(self) -> None:
        """From now on the standby gets no commits."""
        self._standby = self._copy("standby.db")

    def fail_over(self) -> None:
        """The standby takes over, without what was committed since it was cut off."""
        source = self._standby or self._copy("restarted.db")
        self.runs += 1
        self.path = source.replace(self._directory / f"postgres-{self.runs}.db")
        self._standby = None

    def _copy(self, name: str) -> Path:
        target = self._directory / name
        target.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        return target


class SharedDatabase(SqliteDatabase):
    """One replica's connection to it (in place of :class:`cloudgraft.store.databases.postgres.PostgresDatabase`)."""

    def __init__(self, postgres: SimPostgres) -> None:
        super().__init__(postgres.path, is_shared=True)
        self._postgres = postgres
        self._run = postgres.runs

    @contextmanager
    def transaction(self, mode: Mode = Mode.READ) -> Iterator[Connection]:
        """As the real one's; an error while it is away, and a new connection after a failover."""
        if self._postgres.is_away:
            raise JournalUnavailableError("the simulated PostgreSQL is away")
        if self._run != self._postgres.runs:
            self.engine.dispose()
            self._run, self._path, self._inode = self._postgres.runs, self._postgres.path, None
        with super().transaction(mode) as connection:
            yield connection

    def stored_cluster_id(self) -> str | None:
        """PostgreSQL has no file beside it."""
        return None

    def keep_cluster_id(self, cluster_id: str) -> None:
        """There is no place for it."""

    def _connect(self) -> sqlite3.Connection:
        connection = super()._connect()
        connection.create_function("sim_now", 0, self._postgres.now)
        connection.create_function("sim_server", 0, lambda: str(self._postgres.runs))
        return connection


def shared() -> AbstractContextManager[object]:
    """For a while, what is said to PostgreSQL is said to the simulated one."""
    stack = ExitStack()
    for name, new in (
        ("cloudgraft.store.sql.PostgresDatabase", SharedDatabase),
        ("cloudgraft.store.lease.election.PostgresDatabase", SharedDatabase),
        ("cloudgraft.store.lease.lease_row._NOW", func.sim_now()),
        ("cloudgraft.store.lease.lease_row._SERVER", func.sim_server()),
        # Transactions are over in no time here: no session holds the row and waits for its replica.
        ("cloudgraft.store.lease.lease_row.end_silent_holders", lambda _connection, _seconds: 0),
        # Only for speed: a replica that follows asks for the lease every second, all day.
        ("cloudgraft.engine.leadership._Times.retry_every", property(lambda times: times.lease / 5)),
    ):
        stack.enter_context(mock.patch(name, new))
    return stack
