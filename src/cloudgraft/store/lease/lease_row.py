"""Reads and writes the lease row, and decides by this host's clock when a lease may be taken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, Double, Text, cast, extract, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from cloudgraft.store.journal import FencedError
from cloudgraft.store.schema import lease

# -- decisions (pure) --------------------------------------------------------------------------------------------------
# The lease is a counter in the database. Its holder raises it at each renewal; all other replicas watch it. A lease may
# be taken once its row has not changed for the whole length of the lease, by the watcher's own BOOTTIME. No clock is
# ever compared with that of another host, so no clock that jumps elects a second leader.
#
# Why no two replicas take themselves for the leader: a holder trusts its lease for ``USABLE`` of its length, counted
# from before it sent its last renewal that was confirmed. A watcher counts the whole length from after it has read
# the result of that renewal, or a later one. So the watcher may take the lease only after the holder has stopped, as
# long as the two clocks run at rates that differ by less than a quarter.
#
# A database that fails over to a standby without the last commits shows an older row, perhaps one that looks free
# while a leader that it does not know is still at work. Each row is therefore watched together with the run of the
# server that shows it, and names the one on which it was taken. Another server starts the wait again, and a lease
# that was released on another one is not free at once.


USABLE: Final = 0.8  # of a lease, for its holder; the rest is for clocks that run at different rates


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The row of the `lease` table, as one server showed it."""

    server: str  # that shows it; changes when the database is restarted, restored or fails over
    taken_on: str  # the server that gave the lease; empty: none ever did
    holder: str  # empty: released
    epoch: int
    renewals: int
    seconds: float  # for how long its holder leads without a renewal


class LeaseWatch:
    """Remembers the row, since when it has been the same, and which claim was ours last."""

    def __init__(self, seconds: float) -> None:
        """``seconds`` is the length of this replica's own leases."""
        self._seconds = seconds
        self._row: LeaseRow | None = None
        self._since = math.inf
        self._ours: tuple[str, int, str] | None = None
        self._ends = -math.inf

    def see(self, row: LeaseRow, now: float) -> None:
        """Records a row. ``now`` must be read after the database has answered, not before."""
        if row != self._row:
            self._row, self._since = row, now

    def ask(self, holder: str, epoch: int, server: str) -> None:
        """Records a claim that is about to be committed. The answer may be lost."""
        self._ours = (holder, epoch, server)

    def confirm(self, sent: float) -> None:
        """Records a claim or a renewal that was confirmed. ``sent`` is from before it was requested."""
        self._ends = sent + self._seconds

    def own_seconds(self, now: float) -> float:
        """Seconds for which the claim that was confirmed last may be held."""
        return max(0.0, self._ends - now)

    def seconds_left(self, now: float) -> float:
        """Seconds for which the row must not change before the lease may be taken; negative: free for that long."""
        if self._row is None:
            return math.inf
        if self._row.holder:
            wait = self._row.seconds
        elif self._row.taken_on in ("", self._row.server):
            wait = 0.0
        else:  # another server may have granted it since, and this one may not know
            wait = self._seconds
        return self._since + wait - now

    def is_still_ours(self, now: float) -> bool:
        """Whether no other replica can have led since we last did: then there is nothing to wait for."""
        if self._row is None or self._ours is None:
            return False
        holder, epoch, server = self._ours
        if (self._row.holder, self._row.epoch) != (holder, epoch):
            return False
        # A server without the last commits does not know who has led since; but within our lease no replica has.
        return self._row.server == server or self.own_seconds(now) > self._seconds * (1 - USABLE)


REPLICA: Final = "cloudgraft"  # the application_name of replicas: it identifies their sessions to each other

_NOW = cast(extract("epoch", func.clock_timestamp()), Double)  # not now(): that is when the transaction began
# A name for this run of this server: a restart, a standby and a restored copy each have another. Only compared.
_SERVER = cast(extract("epoch", func.pg_postmaster_start_time()), Text)
# Sessions of our own user that have written or locked the lease in a transaction and wait for their client since then.
_END_SILENT: Final = text(
    """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity AS session
    WHERE datname = current_database() AND usename = current_user AND application_name = :replica
      AND pid <> pg_backend_pid() AND wait_event_type = 'Client'
      AND now() - state_change > make_interval(secs => :seconds)
      AND EXISTS (
        SELECT FROM pg_locks AS held
        WHERE held.pid = session.pid AND held.granted AND held.relation = to_regclass('lease')
          AND held.mode IN ('RowShareLock', 'RowExclusiveLock')
      )
    """
)


_FIRST_IN_LINE: Final = 0x636C6F7564  # an advisory lock, which ends with its session


def stand_in_line(connection: Connection) -> bool:
    """Whether this session is the first of those that wait for a leader of another rollout. May be called again."""
    return bool(connection.scalar(select(func.pg_try_advisory_lock(_FIRST_IN_LINE))))


def leave_line(connection: Connection) -> None:
    """Lets another session be the first in line."""
    connection.execute(select(func.pg_advisory_unlock_all()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to lead in a certain epoch, as one run of the database's server gave it.

    ``holder`` is part of it: after a failover without the last commits, the same epoch may be given once more.
    """

    holder: str
    epoch: int
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The current leader. Another replica may take over in ``seconds_left``, unless the leader renews."""

    holder: str
    epoch: int
    seconds_left: float


@dataclass(frozen=True, slots=True)
class SeenRow:
    """The row, and the time by the database's wall clock when it was read."""

    row: LeaseRow
    database_time: float


def look(connection: Connection, *, lock: bool = False) -> SeenRow:
    """Reads the row, and creates it if missing. ``lock``: it cannot change until the transaction ends."""
    columns = (lease.c.server, lease.c.holder, lease.c.epoch, lease.c.renewals, lease.c.seconds)
    statement = select(_SERVER, *columns, _NOW).where(lease.c.id == 1)
    if lock:
        statement = statement.with_for_update()
    found = connection.execute(statement).one_or_none()
    if found is None:
        new = insert(lease).values(id=1, holder="", epoch=0, renewals=0, seconds=0.0, server="")
        connection.execute(new.on_conflict_do_nothing())
        found = connection.execute(statement).one()
    server, taken_on, holder, epoch, renewals, seconds, now = found
    row = LeaseRow(server=server, taken_on=taken_on, holder=holder, epoch=epoch, renewals=renewals, seconds=seconds)
    return SeenRow(row, now)


def take(connection: Connection, seen: LeaseRow, holder: str, seconds: float) -> Claim | None:
    """Becomes leader in a new epoch, if the row is still as it was seen; None when it has changed."""
    statement = (
        update(lease)
        .where(
            lease.c.id == 1,
            lease.c.holder == seen.holder,
            lease.c.epoch == seen.epoch,
            lease.c.renewals == seen.renewals,
        )
        .values(holder=holder, epoch=seen.epoch + 1, renewals=0, seconds=seconds, server=seen.server)
    )
    if connection.execute(statement).rowcount != 1:
        return None
    return Claim(holder=holder, epoch=seen.epoch + 1, server=seen.server)


def end_silent_holders(connection: Connection, seconds: float) -> int:
    """Ends sessions that hold the row and have waited for their replica for ``seconds``; returns how many.

    Call it when the lease may be taken. Its former holder may have been stopped or cut off in the middle of a
    transaction, and would keep every replica from leading for as long: PostgreSQL's own limits do not end every such
    transaction. What is ended was not committed, and its replica has stopped leading before.
    """
    return len(connection.execute(_END_SILENT, {"replica": REPLICA, "seconds": seconds}).all())


def extend(connection: Connection, claim: Claim, seconds: float) -> float | None:
    """Renews the lease; returns the database's time. None: another replica leads, or the database is another one."""
    renewed = update(lease).where(*_is_ours(claim)).values(renewals=lease.c.renewals + 1, seconds=seconds)
    return connection.execute(renewed.returning(_NOW)).scalar()


def give_up(connection: Connection, claim: Claim) -> None:
    """Lets another replica lead at once. The epoch stays, so that the next one is higher."""
    connection.execute(update(lease).where(*_is_ours(claim)).values(holder=""))


def fence(connection: Connection, claim: Claim) -> None:
    """Keeps every other replica from becoming leader until the transaction ends; FencedError when we are not leader.

    It also waits for an earlier transaction of our own whose connection broke: it may still be about to commit. So a
    read behind this fence after an ambiguous write shows its outcome.

    A lease that no replica has taken since is still ours, even if we woke up late: nothing was written in between. On
    another server, what we built on may be missing: a standby may lack the last commits.
    """
    statement = select(lease.c.epoch).where(*_is_ours(claim)).with_for_update()
    if connection.execute(statement).scalar() is None:
        raise FencedError(
            "this replica does not lead any more: another replica has taken over, or the database was restarted or "
            "has failed over"
        )


def _is_ours(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (
        lease.c.id == 1,
        lease.c.holder == claim.holder,
        lease.c.epoch == claim.epoch,
        _SERVER.is_not_distinct_from(claim.server),
    )
