"""Runs blocking calls in one thread per database, in the order of arrival, each with a time limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.threads import BlockingPool
from cloudgraft.store.databases.database import Database
from cloudgraft.store.journal import JournalUnavailableError

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
