"""Connects drivers that dial in with the callers that need machines."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import grpc
import grpc.aio

from cloudgraft.dock.access import WAYS_TO_SECRETS, CallerAccess, Context, admit
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.service import DockService
from cloudgraft.dock.hub.session import HubContext, Session, State
from cloudgraft.dock.hub.settings import DriverReport, HubSettings, Limits
from cloudgraft.dock.protocol.dialect import Dialect, Introduction, Tombstones
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Key, Operation
from cloudgraft.dock.protocol.v0 import PROTOCOL as PROTOCOL_V0
from cloudgraft.net.connections import RateLimitedLog
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    PermissionDeniedError,
    PreconditionError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.server.listener import abort

__all__ = ["DriverReport", "Hub", "HubSettings"]

log = logging.getLogger("cloudgraft.dock")

_TICKS: Final = 4  # checks of all connections in one heartbeat
_PROBE: Final = 1.5  # heartbeats that a driver has to answer a probe when another one wants its key
_REJECT_TIMEOUT: Final = 1.0  # seconds; a driver that does not read misses the message, and must not delay others
_V0_TOMBSTONES: Final = 1000  # for one connection: its operation numbers mean nothing on another


class Registry:
    """The drivers that are ready, by key.

    A process that reconnects replaces its own session: its old connection is dead, and the hub may not know yet. A
    different process waits until the hub has probed the holder. In v0 the hub cannot probe, and processes have no id:
    the first one keeps the key, as in 2018, until its connection ends. Keepalive ends that of a frozen process.
    """

    def __init__(self, probe: float) -> None:
        """``probe``: seconds that a holder has to answer a probe."""
        self._probe = probe
        self._holders: dict[Key, Session] = {}
        self._contested: set[Key] = set()  # keys whose holder is being probed

    def get(self, key: Key) -> Session | None:
        """The driver of this key."""
        return self._holders.get(key)

    def sessions(self) -> Sequence[Session]:
        """All registered sessions."""
        return list(self._holders.values())

    async def admit(self, newcomer: Session) -> None:
        """Registers the session under its key; raises AlreadyExistsError when another live driver holds it.

        The session is registered when this returns: nothing is awaited after registering.
        """
        key = newcomer.key
        holder = self._holders.get(key)
        if holder is not None and not _same_process(holder, newcomer):
            await self._contest(holder, newcomer)
        holder = self._holders.get(key)
        if holder is not None:
            self._evict(holder)
        self._holders[key] = newcomer

    def release(self, session: Session) -> bool:
        """Unregisters the session; False when another one holds the key by then."""
        if self._holders.get(session.key) is not session:
            return False
        del self._holders[session.key]
        return True

    async def _contest(self, holder: Session, newcomer: Session) -> None:
        key = newcomer.key
        if key in self._contested:
            raise _taken(key)
        self._contested.add(key)
        try:
            alive = await holder.is_alive(self._probe)
        finally:
            self._contested.discard(key)
        # Meanwhile the holder may have left, or reconnected under the same key.
        now = self._holders.get(key)
        if now is not None and (alive or now is not holder):
            raise _taken(key)

    @staticmethod
    def _evict(holder: Session) -> None:
        log.warning(
            "a newer connection replaces a driver's session",
            extra={"driver": str(holder.key), "session": holder.session_id},
        )
        holder.end("its place went to a newer connection", UnavailableError("a newer connection has this place"))


def _same_process(holder: Session, newcomer: Session) -> bool:
    return (
        bool(newcomer.info.instance_id)
        and holder.info.instance_id == newcomer.info.instance_id
        and holder.identity == newcomer.identity
        and holder.state is not State.CLOSED
    )


def _taken(key: Key) -> AlreadyExistsError:
    return AlreadyExistsError(f"a driver for {key} is already registered, and alive", retry_after=5)


class Hub:
    """All connected drivers. Not thread-safe: use it from one event loop."""

    def __init__(
        self,
        *,
        access: CallerAccess,
        classes: MachineClasses,
        settings: HubSettings = HubSettings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._settings = settings
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._registry = Registry(settings.heartbeat * _PROBE)
        self._tombstones = Tombstones(settings.tombstones)
        self._limits = Limits(settings, clock)
        self._context = HubContext(
            settings=settings, clock=clock, left=self._left, late=self._late, counts=self._counts
        )
        self._sessions: dict[Session, None] = {}  # ready and draining sessions
        self._gone: set[Session] = set()  # sessions whose end is not logged yet
        self._listeners: list[Callable[[Key], None]] = []
        self._expected: Counter[Key] = Counter()  # drivers that clouds of this process need
        self._refusals = RateLimitedLog(log)
        self._closing = False
        self._ticker: asyncio.Task[None] | None = None
        self._service = DockService(self._serve, access, classes, sessions=lambda: list(self._sessions))
        access.on_removed(self._end_unauthorized)
        classes.on_changed(self._notify_changed)

    # -- for callers ---------------------------------------------------------------------------------------------------

    async def call(self, key: Key, operation: Operation) -> Answer:
        """Calls a driver, and returns its response.

        Raises UnavailableError at once when no driver is connected: nothing was done. Raises DeadlineError when the
        outcome is unknown: no answer in time, or the connection was lost in mid-operation. Any other error is the
        driver's own, by its code.
        """
        session = self._registry.get(key)
        if session is None:
            raise UnavailableError(f"no driver for {key} is connected: nothing was done")
        if operation.spec is not None and operation.spec.user_data and session.info.protocol != PROTOCOL_V0:
            self._check_secrets(session)
        return await session.call(operation)

    def _check_secrets(self, session: Session) -> None:
        """Raises PreconditionError when the driver may not get user data: it holds what machines join with."""
        identity = self._access.identify(session.context)
        if identity is None or not identity.gets_secrets:
            raise PreconditionError(
                f"nothing was sent to the driver for {session.key}: the machine's user data holds secrets, and the "
                f"driver has not proved who it is. To let it have them, {WAYS_TO_SECRETS}"
            )

    def disconnect(self, why: str) -> None:
        """Ends all sessions; their drivers may come back."""
        for session in list(self._sessions):
            session.end(why, UnavailableError(f"{why}: come back later"))

    def drivers(self) -> Sequence[DriverReport]:
        """The connected drivers, one for each key. Thread-safe."""
        by_key = {session.key: session for session in list(self._sessions) if session.state is State.DRAINING}
        by_key.update({session.key: session for session in self._registry.sessions()})
        return [by_key[key].report() for key in sorted(by_key)]

    def info(self, key: Key) -> DriverInfo | None:
        """What the connected driver declared; None: there is none."""
        session = self._registry.get(key)
        return session.info if session is not None else None

    def counts(self) -> Mapping[str, int]:
        """Event counts since the start: connected, refused, gone, late, malformed. Thread-safe."""
        return dict(self._counts)

    def expect(self, key: Key) -> None:
        """A cloud needs this driver from now on."""
        self._expected[key] += 1

    def expect_no_more(self, key: Key) -> None:
        """Takes back :meth:`expect`."""
        self._expected[key] -= 1

    def expected(self) -> Mapping[Key, bool]:
        """The drivers that clouds need, and whether each is connected. Thread-safe."""
        return {key: self._registry.get(key) is not None for key, clouds in list(self._expected.items()) if clouds > 0}

    def listen(self, on_change: Callable[[Key], None]) -> None:
        """Calls ``on_change`` when a driver connects or leaves, or a late result arrives: time to list again."""
        self._listeners.append(on_change)

    # -- life cycle ----------------------------------------------------------------------------------------------------

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """The handlers for a grpc.aio server; create it with :func:`cloudgraft.dock.hub.service.server_options`."""
        return self._service.handlers()

    async def close(self, grace: float) -> None:
        """Rejects new calls and drivers, and waits at most this many seconds for operations in flight."""
        self._closing = True
        sessions = list(self._sessions)
        for session in sessions:
            session.drain(grace)
        if sessions:
            waiting = [asyncio.create_task(session.idle()) for session in sessions]
            _, late = await asyncio.wait(waiting, timeout=grace)
            for task in late:
                task.cancel()
        for session in list(self._sessions):
            session.end("the hub has closed", UnavailableError("the hub has closed: come back later"))
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)

    async def _tick(self) -> None:
        """Checks all connections while there are any."""
        pause = self._settings.heartbeat / _TICKS
        last = self._clock()
        while self._sessions:
            await asyncio.sleep(pause)
            now = self._clock()
            overslept = now - last - 2 * pause
            last = now
            for session in list(self._sessions):
                if overslept > 0:  # the hub's own loop was blocked: the drivers were not silent
                    session.excuse(overslept)
                session.tick(now, pause)

    # -- admission -----------------------------------------------------------------------------------------------------

    async def _serve(self, context: Context, dialect: Dialect) -> None:
        """Serves one stream from beginning to end."""
        # In a task of its own: if a first write is cancelled half way, gRPC cannot end the call.
        await context.send_initial_metadata(())
        try:
            identity = admit(self._access, context).name
            with self._limits.place(identity):
                session = await self._receive(context, dialect, identity)
                try:
                    await session.run()
                finally:
                    if session in self._gone:
                        self._gone.discard(session)
                        _log_gone(session)
        except CloudgraftError as error:
            self._counts["refused"] += 1
            self._log_refusal(error, context.peer())
            await _reject(context, dialect.reject(error), error)
        else:
            if session.ending is not None:
                await _reject(context, None, session.ending)

    def _log_refusal(self, error: CloudgraftError, peer: str) -> None:
        """Logs one line a minute for each host and reason: a driver that is refused tries again for ever."""
        if isinstance(error, AuthenticationError | RateLimitedError):  # the first has its line already
            log.debug("a driver was not taken: %s", error.message, extra={"peer": peer})
            return
        who = (peer.rpartition(":")[0], error.message)
        self._refusals.warning("a driver was not taken: %s", error.message, who=who, extra={"peer": peer})

    async def _receive(self, context: Context, dialect: Dialect, identity: str) -> Session:
        """Returns the session alone, so that the long first message is not kept in memory until the end."""
        introduction = await self._shake_hands(context, dialect)
        session = Session(
            context=context,
            dialect=dialect,
            info=introduction.info,
            identity=identity,
            tombstones=self._tombstones if dialect.beats else Tombstones(_V0_TOMBSTONES),
            hub_context=self._context,
        )
        await self._admit(session, introduction)
        return session

    async def _shake_hands(self, context: Context, dialect: Dialect) -> Introduction:
        limit = self._settings.handshake
        try:
            async with asyncio.timeout(limit):
                greeting = dialect.greeting()
                if greeting is not None:
                    await context.write(greeting)
                data = await context.read()
        except TimeoutError:
            raise DeadlineError(f"the driver did not introduce itself within {limit:g} s") from None
        if data is grpc.aio.EOF:
            raise InvalidArgumentError("the driver left before it introduced itself")
        return dialect.introduction(data)

    async def _admit(self, session: Session, introduction: Introduction) -> None:
        admit(self._access, session.context, session.key)
        await self._registry.admit(session)
        # Await nothing between here and ready: no operation may be sent before the welcome.
        try:
            admit(self._access, session.context, session.key)  # it may have lost its rights meanwhile
            if self._closing:
                raise UnavailableError("the hub is closing: come back later", retry_after=self._settings.grace)
        except CloudgraftError:
            self._registry.release(session)
            raise
        session.begin(introduction.late)
        self._ready(session)

    # -- events --------------------------------------------------------------------------------------------------------

    def _ready(self, session: Session) -> None:
        self._sessions[session] = None
        self._access.trust(session.context)
        self._counts["connected"] += 1
        info = session.info
        log.info(
            "a driver is connected",
            extra={"driver": str(info.key), "protocol": info.protocol, "identity": session.identity},
        )
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._tick())
        self._notify(session.key)

    def _left(self, session: Session) -> None:
        if session.state is State.CLOSED:
            self._sessions.pop(session, None)
        if self._registry.release(session):
            self._counts["gone"] += 1
            if session.state is State.CLOSED:
                self._gone.add(session)  # logged when its stream has ended: only then the reason is certain
            else:
                _log_gone(session)
            self._notify(session.key)

    def _late(self, session: Session) -> None:
        self._counts["late"] += 1
        self._notify(session.key)

    def _notify(self, key: Key) -> None:
        for listener in self._listeners:
            try:
                listener(key)
            except Exception:
                log.exception("a listener of the hub failed", extra={"driver": str(key)})

    def _end_unauthorized(self, *_: object) -> None:
        """Ends the sessions of identities that were removed or lost rights."""
        for session in list(self._sessions):
            identity = self._access.identify(session.context)
            if identity is None or identity.name != session.identity or not identity.may(session.key):
                error = PermissionDeniedError("this driver was taken out of the hub's configuration")
                session.end("the driver's right to be here has ended", error)

    def _notify_changed(self, key: Key, classes: Sequence[str], secrets: Sequence[str]) -> None:
        session = self._registry.get(key)
        if session is not None:
            session.notifications.changed(classes, secrets)


def _log_gone(session: Session) -> None:
    about = {"driver": str(session.key), "identity": session.identity, "peer": session.peer}
    log.info("a driver is gone: %s", session.why_gone, extra=about)


async def _reject(context: Context, message: bytes | None, error: CloudgraftError) -> None:
    """Sends the driver the reason, if it reads, and ends the call."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REJECT_TIMEOUT):
            if message is not None:
                with contextlib.suppress(grpc.aio.BaseError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    await context.write(message)
            try:
                await abort(context, error)
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                log.debug("a rejected driver had already left", extra={"peer": context.peer()})
