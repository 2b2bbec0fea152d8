"""Connects drivers that dial in with the callers that need machines."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import grpc

from cloudgraft.dock.access import Access
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.admission import Admission, Registry
from cloudgraft.dock.hub.service import ClassRequests, DockService
from cloudgraft.dock.hub.session import HubContext, Session, State
from cloudgraft.dock.hub.settings import DriverReport, HubSettings, Limits
from cloudgraft.dock.protocol.dialect import Tombstones
from cloudgraft.dock.protocol.messages import Answer, DriverInfo, Key, Operation
from cloudgraft.dock.protocol.v0 import DialectV0
from cloudgraft.dock.protocol.v1 import DialectV1
from cloudgraft.sdk.errors import PermissionDeniedError, UnavailableError

__all__ = ["DriverReport", "Hub", "HubSettings"]

log = logging.getLogger("cloudgraft.dock")

_TICKS: Final = 4  # checks of all connections in one heartbeat
_PATIENCE: Final = 1.5  # heartbeats that a driver has to answer a probe when another one wants its key


class Hub:
    """All connected drivers. Not thread-safe: use it from one event loop."""

    def __init__(
        self,
        *,
        access: Access,
        classes: MachineClasses,
        settings: HubSettings = HubSettings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._settings = settings
        self._clock = clock
        self._registry = Registry(settings.heartbeat * _PATIENCE)
        self._sessions: dict[Session, None] = {}  # ready and draining sessions
        self._listeners: list[Callable[[Key], None]] = []
        self._counts: Counter[str] = Counter()
        self._closing = False
        self._ticker: asyncio.Task[None] | None = None
        self._service = self._made_service(classes)
        access.on_removed(self._end_unauthorized)
        classes.on_changed(self._notify_changed)

    def _made_service(self, classes: MachineClasses) -> DockService:
        hub_context = HubContext(
            settings=self._settings, clock=self._clock, left=self._left, late=self._late, malformed=self._malformed
        )
        admission = Admission(
            access=self._access,
            hub_context=hub_context,
            registry=self._registry,
            tombstones=Tombstones(self._settings.tombstones),
            ready=self._ready,
            refused=self._refused,
            closing=lambda: self._closing,
            limits=Limits(self._settings, self._clock),
        )
        class_requests = ClassRequests(access=self._access, classes=classes, sessions=lambda: list(self._sessions))
        return DockService(admission, class_requests, DialectV0(), DialectV1())

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
        return await session.call(operation)

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

    # -- events --------------------------------------------------------------------------------------------------------

    def _ready(self, session: Session) -> None:
        self._sessions[session] = None
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
            log.info("a driver is gone", extra={"driver": str(session.key), "identity": session.identity})
            self._notify(session.key)

    def _late(self, session: Session) -> None:
        self._counts["late"] += 1
        self._notify(session.key)

    def _refused(self) -> None:
        self._counts["refused"] += 1

    def _malformed(self) -> None:
        self._counts["malformed"] += 1

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
