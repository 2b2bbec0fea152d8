"""Credentials in the database, always encrypted, and how they are encrypted again with another key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from cloudgraft.discovery.store import schema
from cloudgraft.discovery.store.statements import INSERTS
from cloudgraft.discovery.store.vault import Sealed, Vault
from cloudgraft.sdk.errors import NotFoundError, PreconditionError

__all__ = ["Rotation", "Step", "drop_credentials", "read_credentials", "rotate_some", "write_credentials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What came of it: how many were encrypted anew, and which clusters' could not be decrypted."""

    rotated: int
    unreadable: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A few of them. ``last`` is where to go on; "" at the end."""

    rotated: int
    unreadable: Sequence[str]
    last: str


def write_credentials(connection: Connection, cluster: str, sealed: Sealed) -> None:
    """Keeps the credentials of a cluster, in place of others. NotFoundError when there is no such cluster."""
    table = schema.clusters
    if connection.execute(select(table.c.id).where(table.c.id == cluster)).first() is None:
        raise NotFoundError(f"there is no cluster {cluster}")
    values = {"key_id": sealed.key_id, "ciphertext": sealed.ciphertext}
    statement = INSERTS[connection.dialect.name](schema.credentials).values(cluster_id=cluster, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values))


def drop_credentials(connection: Connection, cluster: str) -> None:
    """Forgets them. Those that are not there are no error."""
    connection.execute(delete(schema.credentials).where(schema.credentials.c.cluster_id == cluster))


def read_credentials(connection: Connection, cluster: str) -> Sealed:
    """The credentials as they are kept. NotFoundError when there are none."""
    table = schema.credentials
    statement = select(table.c.key_id, table.c.ciphertext).where(table.c.cluster_id == cluster)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotFoundError(f"there are no credentials of a cluster {cluster}: hand them in first")
    return Sealed(key_id=row[0], ciphertext=bytes(row[1]))


def rotate_some(connection: Connection, vault: Vault, *, after: str, limit: int) -> Step:
    """Encrypts the next few that another key encrypted with the current one. What is done is not done again."""
    table = schema.credentials
    old = select(table).where(table.c.key_id != vault.current, table.c.cluster_id > after)
    rows = connection.execute(old.order_by(table.c.cluster_id).limit(limit)).all()
    unreadable = []
    for cluster, key_id, ciphertext in rows:
        try:
            sealed = vault.seal(cluster, vault.unseal(cluster, Sealed(key_id=key_id, ciphertext=bytes(ciphertext))))
        except PreconditionError:
            unreadable.append(cluster)
            continue
        values = {"key_id": sealed.key_id, "ciphertext": sealed.ciphertext}
        connection.execute(update(table).where(table.c.cluster_id == cluster).values(values))
    last = rows[-1][0] if len(rows) == limit else ""
    return Step(rotated=len(rows) - len(unreadable), unreadable=unreadable, last=last)
