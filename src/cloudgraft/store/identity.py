"""Verifies which cluster a journal belongs to: its name, and the id that marks its machines.

The id is in the journal, and beside a SQLite journal once more in a file of its own, so that a lost journal does not
lose the proof of which machines are ours. Name, id and file must agree where they are present: the journal of another
cluster would make its machines ours to delete. Where they do not, only the operator's `clusterId` decides.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store import schema
from cloudgraft.store.databases.database import Database, Mode
from cloudgraft.store.databases.files import write_whole
from cloudgraft.store.journal import JournalBrokenError, JournalUnavailableError
from cloudgraft.store.statements import Owner, owner_row, read_owner, write_owner

_log = logging.getLogger("cloudgraft.store")
_LENGTH = 10
_PATTERN = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def new_cluster_id() -> str:
    """Ten lower-case letters and digits, 50 random bits: no two clusters that share a cloud will have the same."""
    return base64.b32encode(secrets.token_bytes(_LENGTH)).decode().lower()[:_LENGTH]


def check_cluster_id(value: str) -> str:
    """The same text, if it can be part of a tag and of a machine's name in any cloud."""
    if not _PATTERN.fullmatch(value):
        raise InvalidArgumentError(f"{value!r} is no cluster id: lower-case letters, digits and '-', at most 63")
    return value


class ClusterIdFile:
    """The file beside a SQLite journal."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str | None:
        """The id in it, or None when there is no such file."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalBrokenError(f"cannot read {self._path}: {error.strerror or error}") from error
        if not _PATTERN.fullmatch(text):
            raise JournalBrokenError(
                f"{self._path} does not hold a cluster id: put back the id that is in the machines' tags "
                "(cloudgraft-cluster-id), or remove the file if the journal is this cluster's, or there are no machines"
            )
        return text

    def write(self, cluster_id: str) -> None:
        """Keeps the id, for good. A file with another id is renamed and never overwritten."""
        try:
            before = self.read()
            if before is not None and before != cluster_id:
                self._path.rename(self._path.with_name(f"{self._path.name}.{before}"))
            write_whole(self._path, f"{cluster_id}\n".encode())
        except OSError as error:
            raise JournalUnavailableError(f"cannot write {self._path}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Configured:
    """The cluster as the configuration names it; empty where there is no configuration or it does not say."""

    cluster: str = ""
    cluster_id: str = ""


class SettledId(NamedTuple):
    """A journal's identity. ``is_vouched`` unless it was generated and no operator has confirmed it."""

    cluster_id: str
    is_vouched: bool


def owner_of(label: str, stored: Owner | None, beside: str | None, configured: Configured) -> Owner:
    """The cluster whose journal this is, as far as journal, file and configuration agree; JournalBrokenError otherwise.

    ``stored`` is from the journal and ``beside`` from the file. An id is generated where there is none. A journal may
    or may not take another id (`clusterId` is not the stored one), depending on its machines: see settle_owner.
    """
    given = configured.cluster_id
    if stored is None:
        if given and beside and given != beside:
            raise _other_id(label, beside, given)
        return Owner(given or beside or new_cluster_id(), configured.cluster)
    is_name_other = bool(stored.cluster and configured.cluster) and stored.cluster != configured.cluster
    if given and given != stored.cluster_id and is_name_other:
        raise _other_id(label, stored.cluster_id, given)
    if not given and is_name_other:
        raise JournalBrokenError(
            f"{label} is the journal of the cluster {stored.cluster} (cluster id {stored.cluster_id}), but the "
            f"configuration says cluster: {configured.cluster}. Put this cluster's own journal in its place; or, if "
            f"the cluster was renamed, say so with clusterId: {stored.cluster_id} in the configuration"
        )
    if not given and beside and beside != stored.cluster_id:
        raise JournalBrokenError(
            f"{label} is of the cluster id {stored.cluster_id}, but its .cluster-id file says {beside}: one of them is "
            "another cluster's, or damaged. The tag cloudgraft-cluster-id of this cluster's machines says which is "
            "right. Put this cluster's own journal in its place; or, if the journal is right, say so with "
            f"clusterId: {stored.cluster_id} in the configuration"
        )
    return Owner(given or stored.cluster_id, configured.cluster or stored.cluster)


def settle_owner(database: Database, configured: Configured) -> SettledId:
    """Makes the journal, the file beside it and the configuration agree, or raises JournalBrokenError.

    The configuration may give another id as long as no machine carries the stored one. When a journal was lost with its
    id, a new one was generated before an operator could name the old one.
    """
    with database.transaction() as connection:
        stored = read_owner(connection)
    beside = database.stored_cluster_id()
    owner = owner_of(database.label, stored, beside, configured)
    if stored is None:
        owner = owner_of(database.label, _store(database, owner), beside, configured)
    elif owner != stored:
        _exchange(database, stored, owner)
    if beside != owner.cluster_id:
        database.keep_cluster_id(owner.cluster_id)
    is_vouched = bool(configured.cluster_id) or (stored is None and beside is not None)
    return SettledId(owner.cluster_id, is_vouched=is_vouched)


def _other_id(label: str, known: str, given: str) -> JournalBrokenError:
    return JournalBrokenError(
        f"{label} belongs to the cluster id {known}, but the configuration says {given}: machines "
        f"marked {known} would be lost from sight. Remove clusterId from the configuration, or give this cluster "
        "a journal of its own"
    )


def _exchange(database: Database, stored: Owner, owner: Owner) -> None:
    """Gives a journal its cluster's name, another name, or, without machines, another id."""
    with database.transaction(Mode.WRITE) as connection:
        if stored.cluster:  # the name changes: fence a leader that does not know it
            connection.execute(update(schema.lease).values(holder=""))  # first: it locks the row
        if owner.cluster_id != stored.cluster_id:
            _forget_clouds(connection, database, stored, owner)
        write_owner(connection, owner, time.time())
    if stored.cluster or owner.cluster_id != stored.cluster_id:
        _log.warning(
            "the journal belongs to another cluster now",
            extra={
                "cluster": owner.cluster,
                "cluster_id": owner.cluster_id,
                "before": stored.cluster,
                "id_before": stored.cluster_id,
            },
        )


def _forget_clouds(connection: Connection, database: Database, stored: Owner, owner: Owner) -> None:
    if connection.execute(select(schema.machines.c.name).limit(1)).first() is not None:
        raise _other_id(database.label, stored.cluster_id, owner.cluster_id)
    connection.execute(delete(schema.clouds))  # list them again: they may have machines of this id


def _store(database: Database, owner: Owner) -> Owner:
    """Writes the owner into a new journal. Returns the one that is there then: another replica may have been first."""
    database.keep_cluster_id(owner.cluster_id)  # before the journal has it, so that it is never lost
    with database.transaction(Mode.WRITE) as connection:
        with contextlib.suppress(IntegrityError), connection.begin_nested():
            connection.execute(insert(schema.journal), [owner_row(owner, time.time())])
        return read_owner(connection) or owner
