"""What the journal and others need of a database, whichever it is: transactions, and errors that say what to do."""

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

__all__ = ["Access", "Database", "Mode"]


class Access(enum.Enum):
    """What a database is opened for."""

    SERVE = "serve"  # it is made when it is not there; what is older may be brought up to date
    UPGRADE = "upgrade"  # as SERVE, and what is older is brought up to date in any case
    REPAIR = "repair"  # nothing is made, damage is let through, and others are kept out
    LOOK = "look"  # nothing is made or changed, and nobody is kept out


class Mode(enum.Enum):
    """What a transaction is for."""

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
        """Where it is, for messages: never with a password."""

    @abstractmethod
    def open(self, access: Access) -> SchemaState:
        """Connects, and sees to the schema. Returns the schema as it was found.

        JournalLockedError when another process has it, JournalBrokenError when a person has to do something.
        """

    @abstractmethod
    def close(self) -> None:
        """Lets go of everything. May be called twice, and without open()."""

    @abstractmethod
    def failure(self, error: DBAPIError, *, committing: bool) -> CloudgraftError:
        """What the database's error means. ``committing``: it came in answer to a COMMIT."""

    @abstractmethod
    def damaged(self, reason: object) -> CloudgraftError:
        """What to do when the database's files are damaged."""

    @abstractmethod
    def integrity(self, connection: Connection) -> list[str]:
        """What the database itself finds wrong with its files."""

    @abstractmethod
    def warnings(self, connection: Connection) -> list[str]:
        """What could go wrong with the way the database is run."""

    @abstractmethod
    def stored_cluster_id(self) -> str | None:
        """The identity that is kept beside the database, should the database be new."""

    @abstractmethod
    def keep_cluster_id(self, cluster_id: str) -> None:
        """Keeps the identity beside the database, so that it outlives it. Does nothing where there is no such place."""

    def lost_commits(self) -> str:
        """What cannot be read any more although it was committed, found without opening it; empty for nothing.

        One with such a loss is opened for nothing but its repair, which lets go of what cannot be read.
        """
        return ""

    def forget_lost_commits(self) -> None:
        """Its repair is done: it may be opened again."""

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
            # What a connection whose COMMIT failed shows of it is not what the next one will find: start afresh.
            connection.invalidate()
            raise self.failure(error, committing=True) from error
