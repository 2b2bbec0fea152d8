"""Serves one driver's connection, from its hello to its end.

The hub never guesses the outcome of an operation (law 3). An operation that was never handed to the connection was not
done: that is certain, and reported as UnavailableError. One that was handed over may have been done, whatever happens
to the connection after that: DeadlineError, and a list settles it.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import grpc.aio

from cloudgraft.dock.access import Context
from cloudgraft.dock.hub.operations import Waiting, answer_or_error, is_unclassified
from cloudgraft.dock.hub.outbox import Notifications, Outbox
from cloudgraft.dock.hub.settings import Bucket, DriverReport, HubSettings
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.dialect import Bye, Dialect, Malformed, Reply, Tombstones
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Key, Operation, Result
from cloudgraft.sdk.common.event_loop import call_timer
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, UnavailableError

log = logging.getLogger("cloudgraft.dock")

_CLASSES_KEPT: Final = 1000
_CANCEL_GRACE: Final = 0.2  # seconds after the end of a stream within which gRPC reports that its connection was lost


class State(enum.Enum):
    """The state of a connection."""

    HANDSHAKE = "handshake"  # the driver has introduced itself, and waits for admission
    READY = "ready"
    DRAINING = "draining"  # operations in flight may end, no new ones begin
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HubContext:
    """What all sessions of a hub share: the settings, and the callbacks for events."""

    settings: HubSettings
    clock: Callable[[], float]
    left: Callable[[Session], None]  # it accepts no more operations
    late: Callable[[Session], None]  # a result arrived without a waiting caller
    counts: Counter[str]  # of events


class Session:
    """The session of an admitted driver. One task reads, one writes."""

    def __init__(
        self,
        *,
        context: Context,
        dialect: Dialect,
        info: DriverInfo,
        identity: str,
        tombstones: Tombstones,
        hub_context: HubContext,
    ) -> None:
        settings, clock = hub_context.settings, hub_context.clock
        self.info = info
        self.identity = identity
        self.session_id = secrets.token_hex(8)
        self.context = context
        self.peer = context.peer()
        self.state = State.HANDSHAKE
        self.ending: CloudgraftError | None = None  # why the hub ended it; None: the driver ended it
        self.why_gone = ""  # why it accepts no more operations, for people
        self._was_closed_by_driver = False  # the stream ended; gRPC reports a lost connection only after that
        self.classes: dict[str, None] = {}  # names of the latest classes that its operations used
        self._dialect = dialect
        self._settings = settings
        self._events = hub_context
        self._clock = clock
        self._since = datetime.now(UTC)
        self._heard_at = self._beat_at = clock()
        self._writing_since: float | None = None
        self._outbox = Outbox(limit=settings.outbox, limit_bytes=settings.outbox_bytes)
        self._tombstones = tombstones
        self.notifications = Notifications(dialect, self._outbox)
        self._waiting = Waiting(
            info,
            dialect,
            self._outbox,
            tombstones,
            settings,
            cancel=self.notifications.cancel,
            late=lambda: hub_context.late(self),
        )
        self._unasked = Bucket(settings.unasked, settings.unasked_per_second, clock)
        self._pings: set[asyncio.Future[None]] = set()
        self._closed = asyncio.Event()
        self._malformed = self._succeeded = self._failed = 0
        self._last_error = ""
        self._unclassified = ""

    @property
    def key(self) -> Key:
        """The key of the driver."""
        return self.info.key

    # -- life cycle ----------------------------------------------------------------------------------------------------

    def begin(self, late: Sequence[Reply]) -> None:
        """Starts sending operations. ``late`` are results that came with the hello."""
        self.state = State.READY
        self.notifications.welcome(self.session_id, self._settings.heartbeat, self._settings.max_message_bytes)
        for reply in late:
            self.notifications.acknowledge(reply.number)
        if any([reply.foreign or self._tombstones.take(self.key, reply.number) for reply in late]):  # noqa: C419 - all
            self._notify_late()

    async def run(self) -> None:
        """Reads and writes until the connection ends."""
        tasks = [asyncio.create_task(self._guarded(self._read())), asyncio.create_task(self._guarded(self._write()))]
        try:
            await self._closed.wait()
            if self._was_closed_by_driver:
                await asyncio.sleep(_CANCEL_GRACE)
        except asyncio.CancelledError:
            if self.state is not State.CLOSED or self._was_closed_by_driver:
                self.why_gone = "its connection was lost, or it cancelled the stream"
            raise
        finally:
            self.end("the connection was lost")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def end(self, why: str, error: CloudgraftError | None = None) -> None:
        """Closes the connection. Every operation in flight fails now; the driver gets ``error``."""
        if self.state is State.CLOSED:
            return
        self.state, self.ending = State.CLOSED, error
        self.why_gone = self.why_gone or (error.message if error is not None else why)
        self._waiting.fail_all(why)
        self._closed.set()
        self._answer_pings()
        self._events.left(self)

    def drain(self, grace: float) -> None:
        """Accepts no new operations. Those in flight may end; those that were never sent fail now."""
        if self.state is State.READY:
            self.notifications.drain(grace)
            self._leave("the hub is closing")

    def _leave(self, why: str) -> None:
        self.state = State.DRAINING
        self.why_gone = why
        self._waiting.fail_unsent(why)
        self._events.left(self)

    async def idle(self) -> None:
        """Returns when nothing is in flight, or when the connection has ended."""
        await self._waiting.empty()

    # -- operations ----------------------------------------------------------------------------------------------------

    async def call(self, operation: Operation) -> Answer:
        """Calls the driver, and returns its response; see Hub.call."""
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
        timer = call_timer()
        timer.hold(self._settings.queue)
        wait = self._waiting.enter(operation, self._settings.max_message_bytes, on_sent=timer.restart)
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
        if operation.verb is Verb.CREATE and is_unclassified(result):
            self._unclassified = result.status.message
        return answer_or_error(result, operation)

    def note_class(self, name: str) -> None:
        """Remembers the class: v0 requests a secret by the secret's name."""
        if name in self.classes:
            return
        self.classes[name] = None
        if len(self.classes) > _CLASSES_KEPT:
            del self.classes[next(iter(self.classes))]

    # -- liveness ------------------------------------------------------------------------------------------------------

    async def is_alive(self, seconds: float) -> bool:
        """Whether the driver gives a sign of life within that time.

        A driver of v0 cannot. It counts as alive until HTTP/2's pings, or the driver, end its connection.
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
        """Sends due heartbeats, and ends a connection that is dead or will be in ``spare`` seconds. Called often."""
        limit = self._settings.silence - spare
        if self._writing_since is not None and now - self._writing_since > limit:
            self.end("the driver does not read", UnavailableError("the driver does not read what the hub sends"))
        elif self._dialect.beats and now - self._heard_at > limit:
            self.end("the driver is silent", UnavailableError(f"the driver sent no heartbeat for {limit:g} s"))
        elif self._dialect.beats and now - self._beat_at >= self._settings.heartbeat - spare:
            self._beat()

    def excuse(self, seconds: float) -> None:
        """Extends the silence limit: the hub's own loop was blocked, so the driver was not silent."""
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
                log.exception("a driver's connection ended because of a bug", extra=self._labels())
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
                self._was_closed_by_driver, self.why_gone = True, self.why_gone or "it closed the stream"
                self.end("the connection to the driver ended")
                return
            self._heard_at = self._clock()
            if self._pings:
                self._answer_pings()
            if not self._take(data):
                # Reads a flooding driver slowly: backpressure on its own connection delays no other driver.
                await asyncio.sleep(self._unasked.take())

    def _take(self, data: bytes) -> bool:
        """Handles one message; False when it was unsolicited."""
        decoded = (
            self._dialect.decode(data) if len(data) <= self._settings.max_message_bytes else Malformed("it is too long")
        )
        if isinstance(decoded, Reply):
            return self._take_reply(decoded)
        if isinstance(decoded, Bye):
            if decoded.at_once:
                self.why_gone = "it unregistered"
                self.end("the driver has left")
            elif self.state is State.READY:
                self._leave("the driver is leaving")
        elif isinstance(decoded, Malformed):
            self._count_malformed(decoded.why)
        return False

    def _take_reply(self, reply: Reply) -> bool:
        """Delivers a reply; False without a waiting caller. A late one is not lost: the listeners list again."""
        self.notifications.acknowledge(reply.number)
        if self._waiting.settle(reply):
            return True
        if reply.foreign or self._tombstones.take(self.key, reply.number):
            self._notify_late()
        else:  # an unknown number, or a duplicate result
            log.debug("an unsolicited result", extra=self._labels())
        return False

    def _notify_late(self) -> None:
        log.info("a result came late", extra=self._labels())
        self._events.late(self)

    def _count_malformed(self, why: str) -> None:
        self._malformed += 1
        self._last_error = f"malformed: {why}"
        self._events.counts["malformed"] += 1
        log.warning("a driver sent a malformed message: %s", why, extra=self._labels())
        if self._malformed >= self._settings.malformed:
            error = InvalidArgumentError(f"the driver sent {self._malformed} malformed messages; the last: {why}")
            self.end("the driver sent too many malformed messages", error)

    # -- reports -------------------------------------------------------------------------------------------------------

    def _labels(self) -> dict[str, str]:
        return {"driver": str(self.key), "identity": self.identity, "session": self.session_id}

    def report(self) -> DriverReport:
        """The current state of the connection."""
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
            queued_for=timedelta(seconds=self._waiting.queued_for),
            succeeded=self._succeeded,
            failed=self._failed,
            malformed=self._malformed,
            last_error=self._last_error,
            unclassified=self._unclassified,
        )
