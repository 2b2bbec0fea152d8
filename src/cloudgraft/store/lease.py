"""Which of several replicas leads: a lease in PostgreSQL, on a connection of its own, beside the journal's queue."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from cloudgraft.store import leader, migrate
from cloudgraft.store.address import PostgresAddress
from cloudgraft.store.database import Mode
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.leader import Claim, Leader
from cloudgraft.store.migrate import Schema
from cloudgraft.store.postgres import PostgresDatabase
from cloudgraft.store.schema import HEAD
from cloudgraft.store.worker import DatabaseThread

__all__ = ["Claim", "Leader", "Lease"]

T = TypeVar("T")
# On Linux this clock goes on while the machine sleeps, as the database's does.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lease:
    """The right to lead for ``seconds``, again and again.

    The holder stops by itself when :meth:`seconds_left` comes near 0, without asking anybody: by then the database may
    have given the lease to another. Should it not stop in time, the database refuses its writes; see
    :class:`cloudgraft.store.sql.SqlJournal`. The journal must have been opened before: that makes the table.
    """

    def __init__(self, address: PostgresAddress | str, *, holder: str = "", seconds: float = 15.0) -> None:
        self.holder = holder or f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"
        self.seconds = seconds
        self._database = PostgresDatabase(PostgresAddress.parse(address) if isinstance(address, str) else address)
        self._thread: DatabaseThread | None = None
        self._claim: Claim | None = None
        self._ends = 0.0

    @property
    def claim(self) -> Claim | None:
        """What we hold, as far as we know; None when we do not lead."""
        return self._claim

    def seconds_left(self) -> float:
        """For how long we may still lead by our own clock, which is never longer than the database thinks."""
        return max(0.0, self._ends - time.clock_gettime(_CLOCK)) if self._claim else 0.0

    async def acquire(self) -> int | None:
        """Becomes leader if nobody is: the new epoch. None when another replica leads.

        The journal must be loaded after this and before anything is written: the former leader may have been busy.
        """
        began = time.clock_gettime(_CLOCK)
        epoch = await self._run(self._take)
        self._claim = None if epoch is None else Claim(holder=self.holder, epoch=epoch)
        self._ends = began + self.seconds
        return epoch

    async def renew(self) -> bool:
        """Leads for another ``seconds`` from now. False: the lease is lost, and another replica may lead.

        JournalUnavailableError when the database does not answer: the lease then ends when it ends.
        """
        claim, began = self._claim, time.clock_gettime(_CLOCK)
        if claim is None:
            return False
        if not await self._run(lambda connection: leader.extend(connection, claim, self.seconds)):
            self._claim = None
            return False
        self._ends = began + self.seconds
        return True

    async def release(self) -> None:
        """Lets another replica lead at once. Does nothing when we do not."""
        claim, self._claim = self._claim, None
        if claim is not None:
            await self._run(lambda connection: leader.give_up(connection, claim))

    async def find_leader(self) -> Leader | None:
        """Who leads now, by the database's word."""
        return await self._run(leader.find_leader)

    async def close(self) -> None:
        """Closes the connection; does not release. May be called twice; what is called later connects again."""
        self._claim = None
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.close(seconds=self._patience)

    @property
    def _patience(self) -> float:
        """A third of the lease: after one call that hangs there is still time for another."""
        return max(1.0, self.seconds / 3)

    async def _run(self, call: Callable[[Connection], T]) -> T:
        def perform() -> T:
            with self._database.transaction(Mode.WRITE) as connection:
                return call(connection)

        if self._thread is None:
            self._thread = DatabaseThread(self._database)
        return await self._thread.run(perform, seconds=self._patience)

    def _take(self, connection: Connection) -> int | None:
        epoch = leader.take(connection, self.holder, self.seconds)
        # A replica of an older release must not lead on a schema that it does not know.
        if epoch is not None and migrate.look(connection).schema is not Schema.CURRENT:
            raise JournalBrokenError(
                f"{self._database.label} is not of this release's schema ({HEAD}) any more: use one release for all"
            )
        return epoch
