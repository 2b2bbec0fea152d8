"""Defines what every database offers: transactions, and errors that say what to do."""

from __future__ import annotations

import contextlib
import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.databases.layout import Layout
from cloudgraft.store.migrate import SchemaState


class Access(enum.Enum):
    """The purpose of opening a database."""

    SERVE = "serve"  # creates a missing database; may migrate an older schema
    UPGRADE = "upgrade"  # as SERVE, and always migrates an older schema
    REPAIR = "repair"  # creates nothing, accepts damage, and excludes other processes
    LOOK = "look"  # creates and changes nothing, and excludes no other process


class Mode(enum.Enum):
    """The kind of a transaction."""

    READ = "read"
    SNAPSHOT = "snapshot"  # several reads that see the same moment
    WRITE = "write"


class Database(ABC):
    """One database and one connection to it. All methods but :meth:`cut` block, and are for one thread at a time."""

    engine: Engine
    layout: Layout

    @property
    @abstractmethod
    def label(self) -> str:
        """The location, for messages: never with a password."""

    @abstractmethod
    def open(self, access: Access) -> SchemaState:
        """Connects, and creates or migrates the schema. Returns the schema as it was found.

        JournalLockedError when another process has it open, JournalBrokenError when a person has to act.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes connections, files and locks. May be called twice, and without open()."""

    @abstractmethod
    def failure(self, error: DBAPIError, *, committing: bool) -> CloudgraftError:
        """Translates the database's error. ``committing``: it came in answer to a COMMIT."""

    @abstractmethod
    def damaged(self, reason: object) -> CloudgraftError:
        """The error for damaged files; it says what to do."""

    @abstractmethod
    def integrity(self, connection: Connection) -> list[str]:
        """Damage that the database itself finds in its files."""

    @abstractmethod
    def warnings(self, connection: Connection) -> list[str]:
        """Risks in the way the database is run."""

    @abstractmethod
    def stored_cluster_id(self) -> str | None:
        """The cluster id that is kept beside the database, for a database that is new."""

    @abstractmethod
    def keep_cluster_id(self, cluster_id: str) -> None:
        """Keeps the cluster id beside the database, so that it outlives it. Does nothing where that is impossible."""

    def lost_commits(self) -> str:
        """Describes commits that cannot be read any more, without opening the database; empty when there are none.

        A database that lost commits is opened only for its repair, which drops what cannot be read.
        """
        return ""

    def forget_lost_commits(self) -> None:
        """Ends a repair: the database may be opened again."""

    def back_up(self, why: str) -> None:
        """Keeps a copy of the database as it is, where it is a file of ours; ``why`` goes into its name."""

    def cut(self) -> None:
        """Makes a call that hangs fail, if there is a way. From any thread."""

    @contextlib.contextmanager
    def transaction(self, mode: Mode = Mode.READ) -> Iterator[Connection]:
        """A transaction: committed at the end, rolled back on any error. Database errors come out translated."""
        try:
            with self.engine.connect() as connection:
                transaction = self._begin(connection, mode)
                try:
                    yield connection
                except BaseException:
                    transaction.rollback()
                    raise
                self._commit(connection, transaction)
        except DBAPIError as error:
            raise self.failure(error, committing=False) from error
        except UnicodeDecodeError as error:  # text of a damaged file, or of an error that quotes it
            raise self.damaged(error) from error

    @abstractmethod
    def _begin(self, connection: Connection, mode: Mode) -> RootTransaction:
        """Starts a transaction of that kind."""

    def _commit(self, connection: Connection, transaction: RootTransaction) -> None:
        try:
            transaction.commit()
        except DBAPIError as error:
            # After a failed COMMIT this connection may show something else than the next one will: start a new one.
            connection.invalidate()
            raise self.failure(error, committing=True) from error
