"""Implements the journal in a database: SQLite, or PostgreSQL for several replicas."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from cloudgraft.sdk.errors import ConflictError
from cloudgraft.store import statements
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.database import Access, Database, DatabaseThread, Mode
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.identity import Configured, check_cluster_id, settle_owner
from cloudgraft.store.journal import EventQuery, FencedError, Journal, JournalUnavailableError
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.lease.lease_row import Claim, fence
from cloudgraft.store.records import Change, Contents, Event
from cloudgraft.store.statements import Opening, check_fence, take_fence

_log = logging.getLogger("cloudgraft.store")
_OPEN_SECONDS = 600.0  # an old journal is copied and migrated
_LOAD_SECONDS = 60.0
_CALL_SECONDS = 15.0
_CLOSE_SECONDS = 5.0


class SqlJournal(Journal):
    """Durable state of one cluster in a database.

    All calls run in one thread, in the order in which they were made. A caller that is cancelled does not stop a write
    that has begun: shield it where that matters.

    With a lease (PostgreSQL), what is written must build on what was loaded *under the same claim*: call load() after
    every Lease.acquire(). Every write then locks the lease row and makes sure that the claim still holds, so the late
    writes of a former leader are refused by the database: FencedError.

    A SQLite journal has the same protection without a lease: the process that opened it last writes, and the writes of
    earlier ones are refused; see :mod:`cloudgraft.store.statements`.
    """

    def __init__(
        self, database: Database, *, cluster: str = "", cluster_id: str | None = None, lease: Lease | None = None
    ) -> None:
        """``cluster`` and ``cluster_id`` are from the configuration; empty where it does not have them."""
        self._database = database
        self._configured = Configured(cluster, check_cluster_id(cluster_id) if cluster_id else "")
        self._lease = lease
        self._needs_claim = isinstance(database, PostgresDatabase)
        self._claim: Claim | None = None  # the one under which the contents were loaded
        self._opening: Opening | None = None  # of a SQLite journal
        self._is_id_new = False
        self._thread: DatabaseThread | None = None

    @classmethod
    def sqlite(cls, path: Path, *, cluster: str = "", cluster_id: str | None = None) -> SqlJournal:
        """A file of its own, for one process at a time."""
        return cls(SqliteDatabase(path), cluster=cluster, cluster_id=cluster_id)

    @classmethod
    def postgresql(
        cls,
        address: PostgresAddress | str,
        *,
        cluster: str = "",
        cluster_id: str | None = None,
        lease: Lease | None = None,
    ) -> SqlJournal:
        """A PostgreSQL that replicas share. Without a lease it can be read only."""
        found = PostgresAddress.parse(address) if isinstance(address, str) else address
        return cls(PostgresDatabase(found), cluster=cluster, cluster_id=cluster_id, lease=lease)

    @property
    def label(self) -> str:
        """The location, for messages."""
        return self._database.label

    async def open(self) -> None:
        """See :class:`Journal`. May be called again after it failed, and after close()."""
        if self._thread is not None:
            return
        thread = DatabaseThread(self._database)
        try:
            await thread.run(self._open, seconds=_OPEN_SECONDS)
        except BaseException:
            await thread.close(seconds=_CLOSE_SECONDS)
            raise
        self._thread = thread

    def _open(self) -> None:
        found = self._database.open(Access.SERVE)
        cluster_id, is_vouched = settle_owner(self._database, self._configured)
        self._is_id_new = not is_vouched
        self.fenced_by, self._opening = "", None
        try:
            self._take_fence()
        except JournalUnavailableError as error:
            # A journal on a full disk can still be served. The first write takes the epoch then.
            _log.warning("the journal cannot be written yet", extra={"journal": self.label, "error": error.message})
        _log.info(
            "journal opened",
            extra={"journal": self.label, "found": found.schema.value, "cluster_id": cluster_id},
        )

    def _take_fence(self) -> None:
        """Opens an epoch of a SQLite journal, unless that is done."""
        if self._needs_claim or self._opening is not None:
            return
        with self._database.transaction(Mode.WRITE) as connection:
            opening = take_fence(connection)
        self._opening = opening  # it counts once it is committed

    async def load(self) -> Contents:
        """See :class:`Journal`. Without the lease it only reads, and later writes are refused."""
        claim = self._lease.claim if self._lease else None
        contents = await self._opened().run(lambda: self._load(claim), seconds=_LOAD_SECONDS)
        self._claim = claim
        return contents

    def _load(self, claim: Claim | None) -> Contents:
        # While we hold the lease row no other replica writes; without it, all must be read as of one moment.
        with self._database.transaction(Mode.READ if claim else Mode.SNAPSHOT) as connection:
            if claim:
                fence(connection, claim)
            elif self._opening is not None:
                self._check_fence(connection, self._opening)
            return replace(statements.read_contents(connection), is_id_new=self._is_id_new)

    async def write(self, change: Change) -> None:
        """See :class:`Journal`."""
        claim = self._claim
        await self._opened().run(lambda: self._write(change, claim), seconds=_CALL_SECONDS, is_write=True)

    def _write(self, change: Change, claim: Claim | None) -> None:
        self._take_fence()
        try:
            with self._database.transaction(Mode.WRITE) as connection:
                self._fence(connection, claim)
                statements.write_change(connection, change)
        except ConflictError:
            with self._database.transaction() as connection:
                raise statements.conflict_error(connection, change.machines) from None

    async def events(self, query: EventQuery) -> Sequence[Event]:
        """See :class:`Journal`."""
        return await self._opened().run(lambda: self._events(query), seconds=_CALL_SECONDS)

    def _events(self, query: EventQuery) -> Sequence[Event]:
        with self._database.transaction() as connection:
            return statements.read_events(connection, query)

    async def purge(self, *, gone_before: float, events_before: float, limit: int = 1000) -> int:
        """See :class:`Journal`."""
        claim = self._claim

        def perform() -> int:
            self._take_fence()
            with self._database.transaction(Mode.WRITE) as connection:
                self._fence(connection, claim)
                return statements.purge(connection, gone_before=gone_before, events_before=events_before, limit=limit)

        return await self._opened().run(perform, seconds=_CALL_SECONDS, is_write=True)

    async def close(self) -> None:
        """See :class:`Journal`. Waits for pending calls, but not for ever. The lease is closed with it."""
        thread, self._thread, self._claim = self._thread, None, None
        if thread is not None:
            await thread.close(seconds=_CLOSE_SECONDS)
        if self._lease is not None:
            await self._lease.close()

    def _fence(self, connection: Connection, claim: Claim | None) -> None:
        if claim:
            fence(connection, claim)
        elif self._needs_claim:
            raise FencedError("this replica does not lead: it may write only what it loaded under a lease of its own")
        elif self._opening is not None:
            self._check_fence(connection, self._opening)

    def _check_fence(self, connection: Connection, opening: Opening) -> None:
        try:
            check_fence(connection, opening)
        except FencedError as error:
            self.fenced_by = error.holder
            raise

    def _opened(self) -> DatabaseThread:
        if self._thread is None:
            raise JournalUnavailableError(f"the journal {self.label} is not open")
        return self._thread
