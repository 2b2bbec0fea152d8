"""One driver's connection, from its first word to its end.

What became of an operation is never guessed (law 3). One that was never handed to the connection was not done: that is
certain, and told as UnavailableError. One that was handed over may have been done, whatever happens to the connection
after that: DeadlineError, and a list tells.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import grpc.aio

from cloudgraft.dock.hub.operations import Waiting, judged
from cloudgraft.dock.hub.outbox import Notifications, Outbox
from cloudgraft.dock.hub.settings import Bucket, DriverReport, HubSettings
from cloudgraft.dock.ports import Context
from cloudgraft.dock.protocol.dialect import Bye, Dialect, Malformed, Reply, Tombstones
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Key, Operation, Result
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, UnavailableError

__all__ = ["EngineContext", "Session", "State"]

log = logging.getLogger("cloudgraft.dock")

_CLASSES_KEPT: Final = 1000


class State(enum.Enum):
    """Of a connection."""

    HANDSHAKE = "handshake"  # it has said who it is, and waits to be taken
    READY = "ready"
    DRAINING = "draining"  # what is in flight may end, nothing new begins
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What all sessions of a hub have in common: how patient it is, and who wants to know what happens."""

    settings: HubSettings
    clock: Callable[[], float]
    left: Callable[[Session], None]  # it takes no more operations
    late: Callable[[Session], None]  # a result came for which nobody waits any more
    malformed: Callable[[], None]


class Session:
    """A driver that was taken. One task reads, one writes."""

    def __init__(
        self,
        *,
        context: Context,
        dialect: Dialect,
        info: DriverInfo,
        identity: str,
        tombstones: Tombstones,
        surroundings: EngineContext,
    ) -> None:
        settings, clock = surroundings.settings, surroundings.clock
        self.info = info
        self.identity = identity
        self.session_id = secrets.token_hex(8)
        self.context = context
        self.peer = context.peer()
        self.state = State.HANDSHAKE
        self.ending: CloudgraftError | None = None  # why the hub has ended it; None: the driver did
        self.classes: dict[str, None] = {}  # names of the latest classes that it was asked to work with
        self._dialect = dialect
        self._settings = settings
        self._events = surroundings
        self._clock = clock
        self._since = datetime.now(UTC)
        self._heard_at = self._beat_at = clock()
        self._writing_since: float | None = None
        self._outbox = Outbox(limit=settings.outbox, limit_bytes=settings.outbox_bytes)
        self._tombstones = tombstones
        self._waiting = Waiting(info, dialect, self._outbox, tombstones, lambda: surroundings.late(self))
        self._unasked = Bucket(settings.unasked, settings.unasked_per_second, clock)
        self.notifications = Notifications(dialect, self._outbox)
        self._pings: set[asyncio.Future[None]] = set()
        self._closed = asyncio.Event()
        self._malformed = self._succeeded = self._failed = 0
        self._last_error = ""

    @property
    def key(self) -> Key:
        """Whose driver it is."""
        return self.info.key

    # -- life ----------------------------------------------------------------------------------------------------------

    def begin(self, late: Sequence[Reply]) -> None:
        """From now on it takes operations. ``late`` are results that came with its first word."""
        self.state = State.READY
        self.notifications.welcome(self.session_id, self._settings.heartbeat, self._settings.max_message_bytes)
        self.notifications.acknowledge([reply.number for reply in late])
        if any([reply.foreign or self._tombstones.take(self.key, reply.number) for reply in late]):  # noqa: C419 - all
            self._tell_late()

    async def run(self) -> None:
        """Reads and writes until the end."""
        tasks = [asyncio.create_task(self._guarded(self._read())), asyncio.create_task(self._guarded(self._write()))]
        try:
            await self._closed.wait()
        finally:
            self.end("the connection was lost")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end(self, why: str, error: CloudgraftError | None = None) -> None:
        """Closes it. Every operation that is in flight fails now; ``error`` is told to the driver."""
        if self.state is State.CLOSED:
            return
        self.state, self.ending = State.CLOSED, error
        self._waiting.fail_all(why)
        self._closed.set()
        self._answer_pings()
        self._events.left(self)

    def drain(self, grace: float) -> None:
        """Takes no new operations; those in flight may end. Those that were never sent fail now."""
        if self.state is State.READY:
            self.notifications.drain(grace)
            self._leave("the hub is closing")

    def _leave(self, why: str) -> None:
        self.state = State.DRAINING
        self._waiting.fail_unsent(why)
        self._events.left(self)

    async def idle(self) -> None:
        """Returns when nothing is in flight, or at its end."""
        await self._waiting.empty()

    # -- operations ----------------------------------------------------------------------------------------------------

    async def call(self, operation: Operation) -> Answer:
        """Has the driver do it, and gives the answer; see Hub.call."""
        if self.state is not State.READY:
            raise UnavailableError(f"the driver for {self.key} has just left: nothing was sent")
        self.note_class(operation.class_ref.name)
        try:
            answer = await self._asked(operation)
        except CloudgraftError as error:
            self._failed += 1
            self._last_error = f"{operation.verb.value}: {error.message}"
            raise
        self._succeeded += 1
        return answer

    async def _asked(self, operation: Operation) -> Answer:
        wait = self._waiting.enter(operation, self._settings.max_message_bytes)
        try:
            reply = await wait.future
        except asyncio.CancelledError:
            self._waiting.abandon(wait)
            raise
        try:
            result = self._dialect.result(reply, operation)
            if not isinstance(result, Result):
                result = await result
        except InternalError as error:
            self._count_malformed(error.message)
            raise
        return judged(result, operation)

    def note_class(self, name: str) -> None:
        """Remembers the class: its secret is asked for by the secret's name in v0."""
        if name in self.classes:
            return
        self.classes[name] = None
        if len(self.classes) > _CLASSES_KEPT:
            del self.classes[next(iter(self.classes))]

    # -- signs of life -------------------------------------------------------------------------------------------------

    async def is_alive(self, seconds: float) -> bool:
        """Whether the driver gives a sign of life within that time.

        One of v0 cannot. It counts as alive until HTTP/2's own pings, or the driver, end its connection.
        """
        if self._closed.is_set() or self.context.done():
            return False
        if not self._dialect.beats:
            return True
        ping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pings.add(ping)
        self._beat()
        try:
            async with asyncio.timeout(seconds):
                await ping
        except TimeoutError:
            return False
        finally:
            self._pings.discard(ping)
        return not self._closed.is_set()

    def _answer_pings(self) -> None:
        while self._pings:
            ping = self._pings.pop()
            if not ping.done():
                ping.set_result(None)

    def tick(self, now: float, spare: float) -> None:
        """Called often: sends what is due, and ends what is dead or will be within ``spare`` seconds."""
        limit = self._settings.silence - spare
        if self._writing_since is not None and now - self._writing_since > limit:
            self.end("the driver does not read", UnavailableError("the driver does not read what the hub sends"))
        elif self._dialect.beats and now - self._heard_at > limit:
            self.end("the driver is silent", UnavailableError("the driver sent no heartbeat"))
        elif self._dialect.beats and now - self._beat_at >= self._settings.heartbeat - spare:
            self._beat()

    def excuse(self, seconds: float) -> None:
        """The hub itself was asleep: what was not heard meanwhile is nobody's silence."""
        self._heard_at += seconds
        if self._writing_since is not None:
            self._writing_since += seconds

    def _beat(self) -> None:
        self._beat_at = self._clock()
        self.notifications.beat()

    # -- reading and writing -------------------------------------------------------------------------------------------

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, grpc.aio.UsageError | grpc.aio.BaseError | asyncio.InvalidStateError):
                log.exception("a connection of a driver has ended by a bug", extra=self._labels())
            self.end("the connection was lost")

    async def _write(self) -> None:
        while True:
            number, data = await self._outbox.next()
            if number is not None:
                self._waiting.mark_sent(number)
            self._writing_since = self._clock()
            await self.context.write(data)
            self._writing_since = None

    async def _read(self) -> None:
        while self.state is not State.CLOSED:
            data = await self.context.read()
            if data is grpc.aio.EOF:
                self.end("the connection to the driver ended")
                return
            self._heard_at = self._clock()
            if self._pings:
                self._answer_pings()
            if not self._take(data):
                # A driver that floods is read slowly: it is held up by its own connection, and nobody else is.
                await asyncio.sleep(self._unasked.take())

    def _take(self, data: bytes) -> bool:
        """Whether it was something that was asked for."""
        heard = (
            self._dialect.hear(data) if len(data) <= self._settings.max_message_bytes else Malformed("it is too long")
        )
        if isinstance(heard, Reply):
            return self._take_reply(heard)
        if isinstance(heard, Bye):
            if heard.at_once:
                self.end("the driver has left")
            elif self.state is State.READY:
                self._leave("the driver is leaving")
        elif isinstance(heard, Malformed):
            self._count_malformed(heard.why)
        return False

    def _take_reply(self, reply: Reply) -> bool:
        """Whether somebody waited for it. One for which nobody waits any more is not lost: the listeners look again."""
        self.notifications.acknowledge_one(reply.number)
        if self._waiting.settle(reply):
            return True
        if reply.foreign or self._tombstones.take(self.key, reply.number):
            self._tell_late()
        else:  # a number that means nothing here, or a result that was seen before
            log.debug("a result that nobody asked for", extra=self._labels())
        return False

    def _tell_late(self) -> None:
        log.info("a result came late", extra=self._labels())
        self._events.late(self)

    def _count_malformed(self, why: str) -> None:
        self._malformed += 1
        self._last_error = f"malformed: {why}"
        self._events.malformed()
        log.warning("a driver sent what makes no sense: %s", why, extra=self._labels())
        if self._malformed >= self._settings.malformed:
            error = InvalidArgumentError(
                f"the driver sent {self._malformed} messages that make no sense; the last: {why}"
            )
            self.end("the driver sent too much that makes no sense", error)

    # -- for people ----------------------------------------------------------------------------------------------------

    def _labels(self) -> dict[str, str]:
        return {"driver": str(self.key), "identity": self.identity, "session": self.session_id}

    def report(self) -> DriverReport:
        """As it is now."""
        return DriverReport(
            info=self.info,
            identity=self.identity,
            peer=self.peer,
            session_id=self.session_id,
            state=self.state.value,
            since=self._since,
            silent_for=timedelta(seconds=max(0.0, self._clock() - self._heard_at)),
            in_flight=self._waiting.in_flight,
            queued=len(self._outbox),
            succeeded=self._succeeded,
            failed=self._failed,
            malformed=self._malformed,
            last_error=self._last_error,
        )
