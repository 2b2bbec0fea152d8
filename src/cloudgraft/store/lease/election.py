"""Elects a leader among replicas by a lease in PostgreSQL, on a connection apart from the journal's."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from cloudgraft.store import migrate
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.databases.database import DatabaseThread, Mode
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.lease import lease_row
from cloudgraft.store.lease.lease_row import Claim, Leader, LeaseRow, LeaseWatch
from cloudgraft.store.lease.succession import Succession, named_after
from cloudgraft.store.migrate import Schema
from cloudgraft.store.schema import HEAD

__all__ = ["Claim", "Leader", "Lease"]

T = TypeVar("T")
_log = logging.getLogger("cloudgraft.store")
# On Linux this clock also runs while the host sleeps, as the clocks of other replicas do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_GIVING_WAY = 1 / 3  # of a lease: the time for which a replica with a wrong clock leaves it to others


class Lease:
    """The right to lead for ``seconds``, which can be renewed.

    The holder stops by itself when :meth:`seconds_left` comes near 0, without asking the database: by then another
    replica may have taken the lease. If it does not stop in time, the database refuses its writes; see
    :class:`cloudgraft.store.sql.SqlJournal`. The journal must have been opened before: that creates the table.
    """

    def __init__(
        self,
        address: PostgresAddress | str,
        *,
        holder: str = "",
        seconds: float = 15.0,
        max_clock_offset: float = math.inf,
        rollout: str = "",
    ) -> None:
        """``holder`` is a name for people. No two leases have the same: a restarted process is another holder.

        ``rollout`` is the name of the rollout that this replica belongs to, for :meth:`is_next`.
        """
        name = holder or f"process {os.getpid()} on {socket.gethostname()}"
        self.holder = f"{named_after(name, rollout)} ({secrets.token_hex(4)})"
        self._succession = Succession(rollout)
        self.seconds = seconds
        self.clock = DatabaseClock(bound=max_clock_offset)
        self._watch = LeaseWatch(seconds)
        self._database = PostgresDatabase(PostgresAddress.parse(address) if isinstance(address, str) else address)
        self._thread: DatabaseThread | None = None
        self._claim: Claim | None = None
        self._heard_at = -math.inf  # when the database answered last

    @property
    def claim(self) -> Claim | None:
        """Our claim, as far as we know; None when we do not lead."""
        return self._claim

    def seconds_left(self) -> float:
        """Seconds for which we may still lead by our own clock: never longer than others wait."""
        return self._watch.own_seconds(_now()) if self._claim else 0.0

    def is_next(self) -> bool:
        """Whether this replica is about to lead, in place of a leader of another rollout."""
        now = _now()  # who does not hear from the database may not be the first in line any more
        return now - self._heard_at < self.seconds and self._succession.is_next(now)

    async def acquire(self) -> int | None:
        """Becomes leader if no other replica is. Returns the new epoch; None when another leads, or may lead.

        The journal must be loaded after this and before anything is written: the former leader may have been busy.
        Call it often: a lease that is not released is free once it was seen unchanged for its whole length.
        """
        began = _now()
        return await self._run(lambda: self._acquire(began))

    async def renew(self) -> bool:
        """Leads for another ``seconds`` from now. False: the lease is lost, and another replica may lead.

        JournalUnavailableError when the database does not answer: the lease then ends when it ends.
        """
        claim, began = self._claim, _now()
        return claim is not None and await self._run(lambda: self._renew(claim, began))

    async def release(self) -> None:
        """Lets another replica lead at once. Does nothing when we do not."""
        # In the thread: an attempt to take the lease may still run there although its caller was cancelled.
        if self._claim is not None or self._thread is not None:
            await self._run(self._release)

    async def find_leader(self) -> Leader | None:
        """The current leader according to the row. None when the lease is free."""
        return await self._run(self._find_leader)

    async def close(self) -> None:
        """Closes the connection; does not release. May be called twice; later calls connect again."""
        self._claim = None
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.close(seconds=self._patience)

    @property
    def _patience(self) -> float:
        """A third of the lease: after one call that hangs there is still time for another."""
        return max(1.0, self.seconds / 3)

    async def _run(self, call: Callable[[], T]) -> T:
        if self._thread is None:
            self._thread = DatabaseThread(self._database)
        answer = await self._thread.run(call, seconds=self._patience)
        self._heard_at = _now()
        return answer

    # -- in the database's thread ------------------------------------------------------------------------------------

    def _acquire(self, began: float) -> int | None:
        claim, self._claim = None, None
        with self._database.transaction(Mode.WRITE) as connection:
            row = self._look(connection)
            is_still_ours = self._watch.is_still_ours(_now())
            if is_still_ours or self._is_free():
                self._end_silent_holders(connection)
                claim = lease_row.take(connection, row, self.holder, self.seconds)
            if claim is not None:
                self._check_schema(connection)
                if self._succession.is_first:
                    lease_row.leave_line(connection)  # the next rollout needs the place while this one leads
                self._watch.ask(claim.holder, claim.epoch, claim.server)
        if claim is None:
            return None
        self._claim = claim
        self._watch.confirm(began)
        if not is_still_ours:
            self.clock.allow()  # it has given way, if it had to
        return claim.epoch

    def _end_silent_holders(self, connection: Connection) -> None:
        ended = lease_row.end_silent_holders(connection, self._patience)
        if ended:
            _log.warning(
                "ended %d session(s) that held the lease while their replica was silent",
                ended,
                extra={"journal": self._database.label},
            )

    def _is_free(self) -> bool:
        # Whoever is first in line has calls that wait for it. If it does not take the lease, it may hang.
        is_behind = self._succession.is_in_line(_now()) and not self._succession.is_first
        waits = self.seconds * _GIVING_WAY if self.clock.is_off or is_behind else 0.0
        return self._watch.seconds_left(_now()) <= -waits

    def _renew(self, claim: Claim, began: float) -> bool:
        sent = time.time()
        with self._database.transaction(Mode.WRITE) as connection:
            database_time = lease_row.extend(connection, claim, self.seconds)
            answered = time.time()
        if database_time is None:
            self._claim = None
            return False
        self.clock.measure(sent, answered, database_time)
        self._watch.confirm(began)
        return True

    def _release(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            with self._database.transaction(Mode.WRITE) as connection:
                lease_row.give_up(connection, claim)

    def _find_leader(self) -> Leader | None:
        succession = self._succession
        with self._database.transaction(Mode.WRITE) as connection:
            row = self._look(connection)
            succession.saw(row.holder, _now())
            if succession.is_in_line(_now()):
                succession.is_first = lease_row.stand_in_line(connection)
            elif succession.is_first:
                succession.is_first = False
                lease_row.leave_line(connection)
        left = self._watch.seconds_left(_now())
        if not row.holder or left <= 0:
            return None
        return Leader(holder=row.holder, epoch=row.epoch, seconds_left=left)

    def _look(self, connection: Connection) -> LeaseRow:
        sent = time.time()
        seen = lease_row.look(connection)
        self.clock.measure(sent, time.time(), seen.database_time)
        self._watch.see(seen.row, _now())
        return seen.row

    def _check_schema(self, connection: Connection) -> None:
        """Refuses a newer schema: a replica of an older release must not lead on a schema that it does not know."""
        if migrate.look(connection).schema is not Schema.CURRENT:
            raise JournalBrokenError(
                f"{self._database.label} is not of this release's schema ({HEAD}) any more: use one release for all"
            )


def _now() -> float:
    return time.clock_gettime(_CLOCK)
