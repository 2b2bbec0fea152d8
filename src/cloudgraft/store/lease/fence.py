"""The row of the `fence` table: which process writes to a SQLite journal.

Locks keep a second process out, but a lock can be lost: its file is removed, or a file system does not have it. So
whoever opens the journal to write takes a new epoch, and every write checks in its own transaction that the epoch is
still the writer's. A process that was overtaken writes nothing more. PostgreSQL has the lease for this.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from cloudgraft.store.databases.filelock import myself
from cloudgraft.store.journal import FencedError
from cloudgraft.store.schema import fence

__all__ = ["Opening", "check_fence", "take_fence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One process's word that it has the journal open. Epochs only grow; the holder tells equal ones apart."""

    epoch: int
    holder: str


def take_fence(connection: Connection) -> Opening:
    """Opens a new epoch: whoever opened an earlier one writes nothing more."""
    last = connection.execute(select(fence.c.epoch)).scalar() or 0
    opening = Opening(epoch=last + 1, holder=f"{myself()} ({secrets.token_hex(4)})")
    connection.execute(delete(fence))
    connection.execute(insert(fence).values(id=1, epoch=opening.epoch, holder=opening.holder))
    return opening


def check_fence(connection: Connection, opening: Opening) -> None:
    """FencedError when another process has opened the journal since."""
    row = connection.execute(select(fence.c.epoch, fence.c.holder)).one_or_none()
    if row is None or (row.epoch, row.holder) != (opening.epoch, opening.holder):
        holder = row.holder if row is not None else "another process"
        raise FencedError(
            f"the journal was opened by {holder} while this process had it open: this process writes nothing more. "
            "Let one server use it, and restart that one",
            holder=holder,
        )
