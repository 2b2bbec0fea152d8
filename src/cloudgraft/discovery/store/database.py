"""Runs discovery's database: SQLite or PostgreSQL, all calls in one thread, every write one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from sqlalchemy import Connection

from cloudgraft.discovery.store.statements import Delta, begin_counting, count_up, read_delta, read_seq, write_beats
from cloudgraft.sdk.errors import DeadlineError
from cloudgraft.store.databases.database import Access, Database, DatabaseThread, Mode
from cloudgraft.store.journal import JournalUnavailableError

T = TypeVar("T")
_log = logging.getLogger("cloudgraft.discovery")
EVERYTHING = -1  # ``since`` of a reader that has nothing yet
_OPEN_SECONDS = 600.0  # an old database is copied and migrated
_LOAD_SECONDS = 60.0
_CALL_SECONDS = 15.0
_CLOSE_SECONDS = 5.0


class Store:
    """The database. A write returns all changes since a number, so that an index can follow.

    Cancelling a caller does not stop a write that has begun; the next read shows its result.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread: DatabaseThread | None = None

    @property
    def label(self) -> str:
        """Its location, for messages."""
        return self._database.label

    async def open(self, *, upgrade: bool = False) -> None:
        """Opens or creates it. ``upgrade``: also migrates a PostgreSQL of an older release."""
        if self._thread is not None:
            return
        thread = DatabaseThread(self._database)
        try:
            await thread.run(lambda: self._open(upgrade=upgrade), seconds=_OPEN_SECONDS)
        except BaseException:
            await thread.close(seconds=_CLOSE_SECONDS)
            raise
        self._thread = thread

    def _open(self, *, upgrade: bool) -> None:
        found = self._database.open(Access.UPGRADE if upgrade else Access.SERVE)
        with self._database.transaction(Mode.WRITE) as connection:
            begin_counting(connection)
        _log.info("discovery database opened", extra={"database": self.label, "found": found.schema.value})

    async def close(self) -> None:
        """Waits for running calls, but not for ever. Idempotent, and allowed without open()."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.close(seconds=_CLOSE_SECONDS)

    async def look(self, since: int) -> Delta | None:
        """Changes since a number; None when there are none."""

        def changes(connection: Connection) -> Delta | None:
            seq = read_seq(connection)
            return None if seq == since else read_delta(connection, since, seq)

        return await self._opened().run(lambda: self._run(changes, Mode.SNAPSHOT), seconds=_LOAD_SECONDS)

    async def read(self, call: Callable[[Connection], T]) -> T:
        """Runs another read."""
        return await self._opened().run(lambda: self._run(call, Mode.READ), seconds=_CALL_SECONDS)

    async def write(self, call: Callable[[Connection, int], T], since: int) -> tuple[T, Delta]:
        """Runs a write, which gets its number, and returns all changes since another."""

        def perform(connection: Connection) -> tuple[T, Delta]:
            seq = count_up(connection)
            return call(connection, seq), read_delta(connection, since, seq)

        return await self._written(perform)

    async def beat(self, beats: Mapping[str, str], at: float, since: int) -> tuple[set[str], Delta]:
        """Writes heartbeats; returns unknown clusters, and the changes.

        Heartbeats are frequent, so they are not read back: unless others wrote too, the delta is empty.
        """

        def perform(connection: Connection) -> tuple[set[str], Delta]:
            seq = count_up(connection)
            missing = write_beats(connection, seq, beats, at)
            return missing, Delta(seq=seq) if seq == since + 1 else read_delta(connection, since, seq)

        return await self._written(perform)

    def _run(self, call: Callable[[Connection], T], mode: Mode) -> T:
        with self._database.transaction(mode) as connection:
            return call(connection)

    async def _written(self, call: Callable[[Connection], T]) -> T:
        try:
            return await self._opened().run(lambda: self._run(call, Mode.WRITE), seconds=_CALL_SECONDS, is_write=True)
        except JournalUnavailableError as error:
            if error.is_ambiguous:  # the outcome is unknown: do not claim that nothing was done
                raise DeadlineError(f"{error.message}; whether it was done is not known: repeat it") from error
            raise

    def _opened(self) -> DatabaseThread:
        if self._thread is None:
            raise JournalUnavailableError(f"the discovery database {self.label} is not open")
        return self._thread
