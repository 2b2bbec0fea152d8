"""The kit's way to the server: every call is made as the autoscaler makes it, and written down."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from cloudgraft.client.connection import Connection
from cloudgraft.client.errors import status_of
from cloudgraft.conformance.check import Violation
from cloudgraft.conformance.releases import Release
from cloudgraft.conformance.report import Exchange
from cloudgraft.conformance.text import shortened, shown
from cloudgraft.sdk.errors import CloudgraftError, StatusCode
from cloudgraft.wire.externalgrpc import RPCS

__all__ = ["Answer", "Probe", "expected_failures"]

_T_co = TypeVar("_T_co", covariant=True)
_U = TypeVar("_U")
_KEPT: Final = 60  # exchanges per check; a report with thousands would help nobody

# The client logs every failed call. Here most failures are meant to be.
_is_probing: Final = contextvars.ContextVar("is_probing", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[_T_co]):
    """What came back: a value, or a status that is not OK."""

    rpc: str
    value: _T_co | None
    status: StatusCode
    error: str
    seconds: float

    @property
    def is_ok(self) -> bool:
        """Whether the call succeeded."""
        return self.status is StatusCode.OK

    @property
    def outcome(self) -> str:
        """For messages: "OK", or the status with its words."""
        return "OK" if self.is_ok else f"{self.status.name}: {shortened(self.error)}"

    def expect(self, what: str = "") -> _T_co:
        """The value; a violation when the call failed. ``what`` says what the call was for."""
        if self.value is None:
            raise Violation(f"{self.rpc}{f' ({what})' if what else ''} was to succeed, but answered {self.outcome}")
        return self.value

    def expect_refusal(self, what: str) -> None:
        """A violation when the call was answered OK."""
        if self.is_ok:
            raise Violation(f"{self.rpc} with {what} must be an error, but was answered OK")

    def map(self, read: Callable[[_T_co], _U]) -> Answer[_U]:
        """The same answer with its value as something else."""
        value = None if self.value is None else read(self.value)
        return Answer(rpc=self.rpc, value=value, status=self.status, error=self.error, seconds=self.seconds)


class Probe:
    """Makes calls over one connection as one release would make them, and keeps what was said."""

    def __init__(self, connection: Connection, release: Release, record: list[Exchange] | None = None) -> None:
        self.connection = connection
        self.release = release
        self._record: list[Exchange] = [] if record is None else record
        self.slowest: dict[str, list[float]] = {}  # the two slowest of each call, in seconds, the slowest last

    def as_release(self, release: Release) -> Probe:
        """The same connection and the same record, as another release."""
        probe = Probe(self.connection, release, self._record)
        probe.slowest = self.slowest
        return probe

    async def call(self, rpc: str, request: Message) -> Answer[Message]:
        """One call. A failure is an answer like any other; nothing is raised but a cancellation."""
        started = time.monotonic()
        token = _is_probing.set(True)
        value, status, error = None, StatusCode.OK, ""
        try:
            value = await self.connection.call(RPCS[rpc], request)
        except CloudgraftError as failure:
            status, error = status_of(failure), failure.message
            if status is StatusCode.OK:  # an answer that could not be decoded
                status = StatusCode.INTERNAL
        except asyncio.CancelledError:
            self._keep(rpc, request, "(given up by the client)", time.monotonic() - started, is_failed=True)
            raise
        finally:
            _is_probing.reset(token)
        seconds = time.monotonic() - started
        self.slowest[rpc] = sorted([*self.slowest.get(rpc, []), seconds])[-2:]
        answered = f"{status.name}: {shortened(error)}" if value is None else shown(value)
        self._keep(rpc, request, answered, seconds, is_failed=value is None)
        return Answer(rpc=rpc, value=value, status=status, error=error, seconds=seconds)

    async def give_up(self, rpc: str, request: Message, seconds: float) -> Answer[Message] | None:
        """One call that the client cancels after some time; None unless the answer was there before that."""
        task = asyncio.ensure_future(self.call(rpc, request))
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(task)
        except TimeoutError:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return None
        finally:
            task.cancel()

    def take_exchanges(self) -> tuple[Exchange, ...]:
        """What was said since the last time, and forgets it: the first calls and the latest of many."""
        taken = list(self._record)
        self._record.clear()
        return tuple(taken if len(taken) <= _KEPT else [*taken[: _KEPT // 2], *taken[-_KEPT // 2 :]])

    def _keep(self, rpc: str, request: Message, answered: str, seconds: float, *, is_failed: bool) -> None:
        exchange = Exchange(rpc=rpc, sent=shown(request), answered=answered, seconds=seconds, is_failed=is_failed)
        self._record.append(exchange)


class _NotExpected(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (_is_probing.get() and hasattr(record, "rpc"))


@contextlib.contextmanager
def expected_failures() -> Iterator[None]:
    """Keeps the kit's own failed calls out of the client's log while it runs."""
    log, silence = logging.getLogger("cloudgraft.client"), _NotExpected()
    log.addFilter(silence)
    try:
        yield
    finally:
        log.removeFilter(silence)
