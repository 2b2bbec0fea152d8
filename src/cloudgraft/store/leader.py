"""The row of the `lease` table: who leads, until when, in which epoch. All times are the database's own.

Whoever writes locks the row for the length of the transaction, so nobody else can become leader in the middle of it;
whoever is no longer leader finds a row that is not its own, and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Double, cast, extract, func, select, update
from sqlalchemy.dialects.postgresql import insert

from cloudgraft.store.journal import FencedError
from cloudgraft.store.schema import lease

__all__ = ["Claim", "Leader", "extend", "fence", "find_leader", "give_up", "take"]

_NOW = cast(extract("epoch", func.clock_timestamp()), Double)  # not now(): that is when the transaction began


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Somebody's word that it leads, in a certain epoch. Epochs only grow."""

    holder: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader(Claim):
    """Who leads now, and for how many seconds unless it renews."""

    seconds_left: float


def take(connection: Connection, holder: str, seconds: float) -> int | None:
    """Becomes leader if nobody is, in a new epoch; None when somebody else leads."""
    statement = (
        insert(lease)
        .values(id=1, holder=holder, epoch=1, expires_at=_NOW + seconds)
        .on_conflict_do_update(
            index_elements=["id"],
            set_={"holder": holder, "epoch": lease.c.epoch + 1, "expires_at": _NOW + seconds},
            where=(lease.c.expires_at <= _NOW) | (lease.c.holder == holder),
        )
        .returning(lease.c.epoch)
    )
    return connection.execute(statement).scalar()


def extend(connection: Connection, claim: Claim, seconds: float) -> bool:
    """Leads for longer. False: it is too late, or somebody else leads."""
    statement = update(lease).where(*_is_ours(claim), lease.c.expires_at > _NOW).values(expires_at=_NOW + seconds)
    return connection.execute(statement).rowcount == 1


def give_up(connection: Connection, claim: Claim) -> None:
    """Lets somebody else lead at once. The epoch stays, so that the next one is higher."""
    connection.execute(update(lease).where(*_is_ours(claim)).values(expires_at=0.0))


def fence(connection: Connection, claim: Claim) -> None:
    """Keeps everybody else from becoming leader until the transaction ends; FencedError when we are not.

    It also waits for an earlier transaction of our own whose connection broke: it may still be about to commit. So
    whoever reads behind this fence after an ambiguous write knows what came of it.
    """
    statement = select(lease.c.epoch).where(*_is_ours(claim), lease.c.expires_at > _NOW).with_for_update()
    if connection.execute(statement).scalar() is None:
        raise FencedError("this replica does not lead any more: its lease has ended, or another replica has taken over")


def find_leader(connection: Connection, *, lock: bool = False) -> Leader | None:
    """Who leads now; None when nobody does. ``lock``: and nobody begins to until the transaction ends."""
    statement = select(lease.c.holder, lease.c.epoch, (lease.c.expires_at - _NOW)).where(lease.c.id == 1)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    if row is None or row[2] <= 0:
        return None
    return Leader(holder=row[0], epoch=row[1], seconds_left=row[2])


def _is_ours(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return (lease.c.id == 1, lease.c.holder == claim.holder, lease.c.epoch == claim.epoch)
