"""Keeps a database in one SQLite file: the default, for one cloudgraft on one host."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, QueuePool, RootTransaction, create_engine
from sqlalchemy.exc import DBAPIError

from cloudgraft.sdk.common.files import exists
from cloudgraft.sdk.errors import CloudgraftError, InternalError, NotFoundError
from cloudgraft.store import migrate
from cloudgraft.store.databases.damaged_log import DamagedLog
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.databases.filelock import FileLock, InodeLock
from cloudgraft.store.databases.files import flush_directory
from cloudgraft.store.databases.layout import Layout
from cloudgraft.store.identity import ClusterIdFile
from cloudgraft.store.journal import JournalBrokenError, JournalUnavailableError
from cloudgraft.store.migrate import JOURNAL, Schema, SchemaState

_log = logging.getLogger("cloudgraft.store")
_BUSY_MS: Final = 2000  # only another program can hold a lock: a shell, a backup
_PRAGMAS: Final = (
    "PRAGMA synchronous=FULL",  # with WAL: every COMMIT waits until the disk has it
    "PRAGMA fullfsync=ON",  # on macOS fsync alone does not reach the disk
    "PRAGMA journal_size_limit=16777216",
)
_PASSING: Final = {
    sqlite3.SQLITE_BUSY: "another program (a shell, a backup?) holds a lock on it; it goes on once that is done",
    sqlite3.SQLITE_LOCKED: "another program (a shell, a backup?) holds a lock on it; it goes on once that is done",
    sqlite3.SQLITE_FULL: "the disk is full: make room, and it goes on by itself",
    sqlite3.SQLITE_IOERR: "the disk refuses: look at its space, its quota and the kernel's log; it goes on by itself",
    sqlite3.SQLITE_CANTOPEN: "look at the directory's owner, mode and disk",
    sqlite3.SQLITE_READONLY: "look at the file's owner and mode, and whether the disk is mounted read-only",
    sqlite3.SQLITE_PERM: "look at the file's owner and mode",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
    sqlite3.SQLITE_PROTOCOL: "another program holds a lock on it",
    sqlite3.SQLITE_INTERRUPT: "it was interrupted",
}
_ONLY_EXISTING: Final = (Access.LOOK, Access.REPAIR)
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class SqliteDatabase(Database):
    """A file, the lock that keeps a second cloudgraft out, and the file with the cluster id.

    ``is_shared``: several processes may have it open; the lock then only keeps them out while the schema changes.
    """

    def __init__(self, path: Path, *, layout: Layout = JOURNAL, is_shared: bool = False) -> None:
        self.layout = layout
        self._path = path.resolve()
        self._lock = FileLock(self._beside(".lock"), what=str(self._path), noun=layout.noun, is_shared=is_shared)
        self._inode_lock = None if is_shared else InodeLock(self._path, self._lock.holder)
        self._log = None if is_shared else DamagedLog(self._path)  # others may write to a shared one meanwhile
        self._id_file = ClusterIdFile(self._beside(".cluster-id"))
        self._inode: tuple[int, int] | None = None
        self._access = Access.SERVE
        self.engine = create_engine(
            "sqlite+pysqlite://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=0,
            hide_parameters=True,
        )

    @property
    def label(self) -> str:
        """The file's path."""
        return str(self._path)

    def open(self, access: Access) -> SchemaState:
        """See :class:`Database`."""
        self._access = access
        if access in _ONLY_EXISTING and not exists(self._path):
            raise NotFoundError(f"there is no {self.layout.noun} at {self._path}")
        if access is Access.LOOK:
            self._refuse_lost_commits()
            return self._look()
        try:
            self._make_file()
            self._lock.acquire()
            if access is not Access.REPAIR:
                self._refuse_lost_commits()
            elif self._log is not None:
                self._log.cut()
            found = self._look() if access is Access.REPAIR else self._make_current()
            self._lock.share()
        except BaseException:
            self.close()
            raise
        return found

    def lost_commits(self) -> str:
        """See :class:`Database`."""
        return "" if self._log is None else self._log.lost_commits()

    def forget_lost_commits(self) -> None:
        """See :class:`Database`."""
        if self._log is not None:
            self._log.forget()

    def _refuse_lost_commits(self) -> None:
        """Runs before SQLite opens the file: SQLite would silently drop those commits, and the log with them."""
        if lost := self.lost_commits():
            raise JournalBrokenError(
                f"{lost}. Run `cloudgraft db repair`: it goes back to the last commit before the damage, keeps a copy, "
                "and has all clouds listed before anything is created. Or put a backup in its place, and remove the "
                "files that end in -wal, -shm and .lost-commits"
            )

    def _look(self) -> SchemaState:
        with self.transaction() as connection:
            return migrate.look(connection, self.layout)

    def close(self) -> None:
        """See :class:`Database`."""
        self.engine.dispose()
        if self._inode_lock is not None:
            self._inode_lock.release()  # after SQLite: see InodeLock
        self._lock.release()
        self._inode = None

    def failure(self, error: DBAPIError, *, committing: bool) -> CloudgraftError:
        """See :class:`Database`."""
        return self._meaning(error.orig, committing=committing)

    def integrity(self, connection: Connection) -> list[str]:
        """See :class:`Database`."""
        found = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
        return [] if found == ["ok"] else [str(line) for line in found]

    def warnings(self, connection: Connection) -> list[str]:
        """See :class:`Database`."""
        if self._path.stat().st_mode & 0o077:
            return [f"{self._path} can be read by others: chmod 600 it"]
        return []

    def stored_cluster_id(self) -> str | None:
        """See :class:`Database`."""
        return self._id_file.read()

    def keep_cluster_id(self, cluster_id: str) -> None:
        """See :class:`Database`."""
        self._id_file.write(cluster_id)

    def _begin(self, connection: Connection, mode: Mode) -> RootTransaction:
        transaction = connection.begin()
        if mode is Mode.WRITE:
            self._check_file()
        # The driver starts no transactions of its own (isolation_level=None): it would do so too late for reads.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if mode is Mode.WRITE else "BEGIN")
        return transaction

    def _check_file(self) -> None:
        """Fails if the file was removed or replaced: it can still be written to, but would never be read again."""
        try:
            status = self._path.stat()
        except OSError:
            status = None
        if status is None or (self._inode and self._inode != (status.st_dev, status.st_ino)):
            raise JournalBrokenError(
                f"{self._path} was removed or replaced while cloudgraft was running: restart cloudgraft; "
                f"{self.layout.after_loss}"
            )

    def _make_file(self) -> None:
        """Creates the file with a mode for its owner only; SQLite gives its other files the same mode."""
        try:
            if self._inode_lock is not None:
                self._inode_lock.acquire()
            else:
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            flush_directory(self._path.parent)
            status = self._path.stat()
        except OSError as error:
            raise JournalBrokenError(
                f"cannot write {self._path}: {error.strerror or error}; the {self.layout.noun}'s directory must exist "
                "and be writable for the user that cloudgraft runs as"
            ) from error
        self._inode = (status.st_dev, status.st_ino)

    def _make_current(self) -> SchemaState:
        with self.transaction() as connection:
            # Damage is better found now than during an operation. Without the indexes this takes milliseconds.
            damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            if damage != "ok":
                raise self.damaged(damage)
            found = migrate.look(connection, self.layout)
            if found.schema is Schema.CURRENT:
                self._check_indexes(connection)
        if found.schema is Schema.NEWER:
            raise JournalBrokenError(
                f"{self._path} was written by a newer cloudgraft (schema {found.revision}, this one knows "
                f"{self.layout.head}): "
                "use that release again, or upgrade this one"
            )
        if found.schema is Schema.FOREIGN:
            raise JournalBrokenError(f"{self._path} is the database of another program: name another file")
        if found.schema is not Schema.CURRENT:
            self._lock.insist()
        if found.schema is Schema.OLDER:
            self.back_up(found.revision)
        if found.schema is not Schema.CURRENT:
            with self.transaction(Mode.WRITE) as connection:
                if found.schema is Schema.EMPTY:
                    migrate.create(connection, self.layout)
                else:
                    migrate.upgrade(connection, layout=self.layout)
        return found

    def _check_indexes(self, connection: Connection) -> None:
        """Checks indexes: a row that an index does not find is lost, or gets written twice."""
        for table in self.layout.vital:
            damage = connection.exec_driver_sql(f"PRAGMA integrity_check({table})").scalar()
            if damage != "ok":
                raise self.damaged(damage)

    def back_up(self, why: str) -> None:
        """See :class:`Database`."""
        target = self._beside(f".backup-{why}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
        os.close(os.open(target, os.O_RDWR | os.O_CREAT, 0o600))
        source, copy = self._connect(), sqlite3.connect(target)
        try:
            source.backup(copy)
        except sqlite3.Error as error:
            raise self._meaning(error, committing=False) from error
        finally:
            copy.close()
            source.close()
        flush_directory(target.parent)
        _log.warning(
            "the %s is changed; a copy of it as it was is kept",
            self.layout.noun,
            extra={"backup": str(target), "why": why},
        )

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a file that has vanished is not silently made again.
        uri = f"{self._path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        if self._access in _ONLY_EXISTING:  # rows with damaged text are to be found by name
            connection.text_factory = _lenient
        try:
            if self._access is Access.LOOK:
                connection.execute("PRAGMA query_only=ON")
            else:
                self._make_durable(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_durable(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise JournalBrokenError(
                f"{self._path} cannot have a write-ahead log (it has {mode!r}): keep it on a local disk"
            )
        for pragma in _PRAGMAS:
            connection.execute(pragma)

    def _meaning(self, error: BaseException | None, *, committing: bool) -> CloudgraftError:
        code = getattr(error, "sqlite_errorcode", 0)
        primary = code & 0xFF
        if code == sqlite3.SQLITE_READONLY_DBMOVED:
            return JournalBrokenError(f"{self._path} was removed or replaced while cloudgraft was running: restart it")
        if primary in _PASSING:
            # After a COMMIT that failed in any other way than by waiting, it is unknown what reached the disk.
            is_ambiguous = committing and primary not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
            message = f"cannot use the {self.layout.noun} {self._path}: {error}: {_PASSING[primary]}"
            return JournalUnavailableError(message, is_ambiguous=is_ambiguous)
        if primary in _DAMAGE or "Could not decode" in str(error):
            return self.damaged(error)
        if primary == sqlite3.SQLITE_ERROR and "no such" in str(error):
            return JournalBrokenError(
                f"the {self.layout.noun} {self._path} lacks what its version says it has: {error}"
            )
        return InternalError(f"the {self.layout.noun} {self._path} refused a statement: {error}")

    def damaged(self, reason: object) -> JournalBrokenError:
        """See :class:`Database`."""
        detail = " ".join(str(reason).replace("*** in database main ***", "").split())
        return JournalBrokenError(
            f"the {self.layout.noun} {self._path} is damaged ({detail}). Stop cloudgraft; put a backup in its place, "
            f"or move it away with its -wal and -shm files{self.layout.keep}. Then start cloudgraft: "
            f"{self.layout.after_loss}"
        )

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(self._path.name + ending)


def _lenient(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
