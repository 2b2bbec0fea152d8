"""Defines what every database offers: transactions, its errors, and one thread for its blocking calls."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import DBAPIError

from cloudgraft.sdk.common.event_loop import BlockingPool
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.store.databases.layout import Layout
from cloudgraft.store.journal import JournalUnavailableError
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


# -- the thread: calls in the order of arrival, each with a time limit -------------------------------------------------


T = TypeVar("T")
_log = logging.getLogger("cloudgraft.store")
_WAITING = 256  # calls; there is one writer, so more than a few means that the database hangs


class DatabaseThread:
    """Runs calls on one database, one after another, without blocking the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._what = f"the {database.layout.noun} {database.label}"
        self._pool = BlockingPool(database.layout.noun, threads=1, waiting=_WAITING)

    async def run(self, call: Callable[[], T], *, seconds: float, is_write: bool = False) -> T:
        """The call's result. JournalUnavailableError when it takes too long: a write is then ambiguous if it had begun.

        A call that has begun goes on to its end before the next one begins, also after its caller has given up. So a
        load() after an ambiguous write shows its outcome.
        """
        job = _Job(call)
        # Not the caller's own limit: a call that hangs must end even if its caller was cancelled long ago.
        end = asyncio.get_running_loop().call_later(seconds, self._cut, job)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self._pool.run(job)
        except JournalUnavailableError:
            raise
        except UnavailableError as error:
            raise JournalUnavailableError(f"{self._what} is busy or closed") from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise JournalUnavailableError(
                f"{self._what} did not answer within {seconds:g} s",
                is_ambiguous=is_write and job.has_begun,
            ) from error
        finally:
            if not job.is_running:
                end.cancel()

    def _cut(self, job: _Job[T]) -> None:
        if job.is_running:
            self._database.cut()

    async def close(self, *, seconds: float) -> None:
        """Closes the database after the pending calls, and ends the thread. Later calls are refused.

        When that takes too long, or the caller is cancelled, it finishes in the background.
        """
        closing = asyncio.ensure_future(self._pool.run(self._database.close))
        closing.add_done_callback(self._closed)
        done, _ = await asyncio.wait([closing], timeout=seconds)
        if not done:
            self._database.cut()
            _log.warning("%s could not be closed in time", self._what)

    def _closed(self, closing: asyncio.Future[None]) -> None:
        self._pool.close()
        if not closing.cancelled() and (error := closing.exception()):
            _log.warning("closing %s failed", self._what, extra={"error": str(error)})


class _Job(Generic[T]):
    """A call that knows whether it has begun, and whether it has ended."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.has_begun = False
        self._has_ended = False

    @property
    def is_running(self) -> bool:
        """Whether the thread runs it now."""
        return self.has_begun and not self._has_ended

    def __call__(self) -> T:
        self.has_begun = True
        try:
            return self._call()
        finally:
            self._has_ended = True
