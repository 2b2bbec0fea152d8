"""The cluster id: what tells our machines from those of another cluster of the same name.

It is in the journal, and beside a SQLite journal once more in a file of its own, so that a lost journal does not lose
the proof of which machines are ours.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.store import schema
from cloudgraft.store.database import Database, Mode
from cloudgraft.store.files import write_whole
from cloudgraft.store.journal import JournalBrokenError, JournalUnavailableError
from cloudgraft.store.statements import read_cluster_id, write_cluster_id

__all__ = ["ClusterIdFile", "SettledId", "check_cluster_id", "new_cluster_id", "settle_cluster_id"]

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
                "(cloudgraft-cluster-id), or remove the file if there are no machines"
            )
        return text

    def write(self, cluster_id: str) -> None:
        """Keeps the id, for good."""
        try:
            write_whole(self._path, f"{cluster_id}\n".encode())
        except OSError as error:
            raise JournalUnavailableError(f"cannot write {self._path}: {error.strerror or error}") from error


class SettledId(NamedTuple):
    """A journal's identity. ``is_vouched`` unless it was generated and nobody has confirmed it."""

    cluster_id: str
    is_vouched: bool


def settle_cluster_id(database: Database, given: str | None) -> SettledId:
    """The journal's identity: the one stored, else the one given, else the one kept beside it, else a new one.

    Another one may be given for as long as no machine carries the one stored: when a journal was lost with its
    identity, a new one was generated before anybody could say which it was.
    """
    with database.transaction() as connection:
        stored = read_cluster_id(connection)
    beside = database.stored_cluster_id()
    known = stored or beside
    if given and stored and given != stored:
        _exchange(database, stored, given)
        stored = given
    elif given and known and given != known:
        raise _refusal(database, known, given)
    cluster_id = stored or _store(database, given or beside or new_cluster_id())
    if beside != cluster_id:
        if beside and beside != known:
            _log.warning(
                "the cluster id kept beside the journal is another; the journal's own is kept",
                extra={"kept": cluster_id, "found": beside},
            )
        database.keep_cluster_id(cluster_id)
    return SettledId(cluster_id, is_vouched=bool(given) or (stored is None and beside is not None))


def _refusal(database: Database, known: str, given: str) -> JournalBrokenError:
    return JournalBrokenError(
        f"{database.label} belongs to the cluster id {known}, but the configuration says {given}: machines "
        f"marked {known} would be lost from sight. Remove clusterId from the configuration, or give this cluster "
        "a journal of its own"
    )


def _exchange(database: Database, stored: str, given: str) -> None:
    """Gives a journal without machines another identity. A leader that does not know of it is fenced by that."""
    with database.transaction(Mode.WRITE) as connection:
        connection.execute(update(schema.lease).values(holder=""))  # first: it locks the row
        if connection.execute(select(schema.machines.c.name).limit(1)).first() is not None:
            raise _refusal(database, stored, given)
        write_cluster_id(connection, given, time.time())
        connection.execute(delete(schema.clouds))  # to be listed again: they may have machines of this id
    _log.warning("the journal has another cluster id now", extra={"cluster_id": given, "before": stored})


def _store(database: Database, cluster_id: str) -> str:
    """Writes the id into a new journal, and returns the one that is there then: another replica may have been first."""
    database.keep_cluster_id(cluster_id)  # before the journal has it: from now on it is never lost
    with database.transaction(Mode.WRITE) as connection:
        with contextlib.suppress(IntegrityError), connection.begin_nested():
            connection.execute(insert(schema.journal).values(id=1, cluster_id=cluster_id, created_at=time.time()))
        return str(connection.execute(select(schema.journal.c.cluster_id)).scalar_one())
