"""Admits drivers: authenticates them, enforces limits, and registers one driver for each key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio

from cloudgraft.dock.access import Access, Context, admit
from cloudgraft.dock.hub.session import HubContext, Session, State
from cloudgraft.dock.hub.settings import Limits
from cloudgraft.dock.protocol.dialect import Dialect, Introduction, Tombstones
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.server.listener import abort

# -- Registry ----------------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")


class Registry:
    """The drivers that are ready, by key.

    A process that reconnects replaces its own session: its old connection is dead, and the hub may not know yet. A
    different process waits until the hub has probed the holder. In v0 the hub cannot probe, and processes have no id:
    the first one keeps the key, as in 2018, until its connection ends. Keepalive ends that of a frozen process.
    """

    def __init__(self, patience: float) -> None:
        """``patience``: seconds that a holder has to answer a probe."""
        self._patience = patience
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
            alive = await holder.is_alive(self._patience)
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


# -- Admission ---------------------------------------------------------------------------------------------------------


_REJECT_TIMEOUT: Final = 1.0  # seconds; a driver that does not read misses the message, and must not delay others
_V0_TOMBSTONES: Final = 1000  # for one connection: its operation numbers mean nothing on another


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Admits drivers, and serves each until its connection ends."""

    access: Access
    hub_context: HubContext
    registry: Registry
    tombstones: Tombstones
    ready: Callable[[Session], None]  # called when a driver was admitted
    refused: Callable[[], None]  # called when a driver was rejected
    closing: Callable[[], bool]
    limits: Limits

    async def serve(self, context: Context, dialect: Dialect) -> None:
        """Serves one stream from beginning to end."""
        # In a task of its own: if a first write is cancelled half way, gRPC cannot end the call.
        await context.send_initial_metadata(())
        try:
            identity = admit(self.access, context).name
            with self.limits.place(identity):
                session = await self._receive(context, dialect, identity)
                await session.run()
        except CloudgraftError as error:
            self.refused()
            level = logging.DEBUG if isinstance(error, RateLimitedError) else logging.INFO  # these come in thousands
            log.log(level, "a driver was not taken: %s", error.message, extra={"peer": context.peer()})
            await _reject(context, dialect.reject(error), error)
        else:
            if session.ending is not None:
                await _reject(context, None, session.ending)

    async def _receive(self, context: Context, dialect: Dialect, identity: str) -> Session:
        """Returns the session alone, so that the long first message is not kept in memory until the end."""
        introduction = await self._shake_hands(context, dialect)
        session = Session(
            context=context,
            dialect=dialect,
            info=introduction.info,
            identity=identity,
            tombstones=self.tombstones if dialect.beats else Tombstones(_V0_TOMBSTONES),
            hub_context=self.hub_context,
        )
        await self._admit(session, introduction)
        return session

    async def _shake_hands(self, context: Context, dialect: Dialect) -> Introduction:
        limit = self.hub_context.settings.handshake
        try:
            async with asyncio.timeout(limit):
                greeting = dialect.greeting()
                if greeting is not None:
                    await context.write(greeting)
                data = await context.read()
        except TimeoutError:
            raise DeadlineError(f"the driver did not say who it is within {limit:g} s") from None
        if data is grpc.aio.EOF:
            raise InvalidArgumentError("the driver left before it said who it is")
        return dialect.introduction(data)

    async def _admit(self, session: Session, introduction: Introduction) -> None:
        admit(self.access, session.context, session.key)
        await self.registry.admit(session)
        # Await nothing between here and ready: no operation may be sent before the welcome.
        try:
            admit(self.access, session.context, session.key)  # it may have lost its rights meanwhile
            if self.closing():
                raise UnavailableError(
                    "the hub is closing: come back later", retry_after=self.hub_context.settings.grace
                )
        except CloudgraftError:
            self.registry.release(session)
            raise
        session.begin(introduction.late)
        self.ready(session)


async def _reject(context: Context, words: bytes | None, error: CloudgraftError) -> None:
    """Sends the driver the reason, if it reads, and ends the call."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REJECT_TIMEOUT):
            if words is not None:
                with contextlib.suppress(grpc.aio.BaseError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    await context.write(words)
            try:
                await abort(context, error)
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                log.debug("a rejected driver had already left", extra={"peer": context.peer()})
