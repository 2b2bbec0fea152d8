"""Reads and takes the `fence` row: the process that writes to a SQLite journal.

Locks exclude a second process, but a lock can be lost: its file is removed, or a file system does not support it. So
a process that opens the journal to write takes a new epoch, and every write checks in its own transaction that the
epoch is still the writer's. A process that was replaced writes nothing more. PostgreSQL has the lease for this.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from cloudgraft.store.databases.filelock import myself
from cloudgraft.store.journal import FencedError
from cloudgraft.store.schema import fence


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A process's claim to the open journal. Epochs only grow; the holder distinguishes equal ones."""

    epoch: int
    holder: str


def take_fence(connection: Connection) -> Opening:
    """Opens a new epoch: the process of an earlier one writes nothing more."""
    last = connection.execute(select(fence.c.epoch)).scalar() or 0
    opening = Opening(epoch=last + 1, holder=f"{myself()} ({secrets.token_hex(4)})")
    connection.execute(delete(fence))
    connection.execute(insert(fence).values(id=1, epoch=opening.epoch, holder=opening.holder))
    return opening


def check_fence(connection: Connection, opening: Opening) -> None:
    """Raises FencedError when another process has opened the journal since."""
    row = connection.execute(select(fence.c.epoch, fence.c.holder)).one_or_none()
    if row is None or (row.epoch, row.holder) != (opening.epoch, opening.holder):
        holder = row.holder if row is not None else "another process"
        raise FencedError(
            f"the journal was opened by {holder} while this process had it open: this process writes nothing more. "
            "Let one server use it, and restart that one",
            holder=holder,
        )
