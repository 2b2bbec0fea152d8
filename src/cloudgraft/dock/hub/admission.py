"""Admits drivers: checks identity and room, and keeps the registry with one driver for each key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio

from cloudgraft.dock.access import admit
from cloudgraft.dock.hub.session import EngineContext, Session, State
from cloudgraft.dock.hub.settings import Limits
from cloudgraft.dock.ports import Access, Context
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

__all__ = ["Admission", "Registry"]


# -- The registry: one driver for each key at a time -------------------------------------------------------------------


log = logging.getLogger("cloudgraft.dock")


class Registry:
    """The drivers that are ready, by key.

    The same process that comes back takes its own place: its old connection is dead, and only it knows already. Another
    one waits until the holder has been asked for a sign of life. In v0 nobody can be asked and no process says which
    one it is: the first one keeps the place, as in 2018, until its connection ends. A frozen one's is ended by HTTP/2's
    keepalive.
    """

    def __init__(self, patience: float) -> None:
        """``patience`` is the seconds that a holder has to give a sign of life."""
        self._patience = patience
        self._holders: dict[Key, Session] = {}
        self._contested: set[Key] = set()  # somebody waits for the holder's sign of life

    def get(self, key: Key) -> Session | None:
        """The driver of these machines."""
        return self._holders.get(key)

    def sessions(self) -> Sequence[Session]:
        """All of them."""
        return list(self._holders.values())

    async def admit(self, newcomer: Session) -> None:
        """Makes it the driver of its key; raises AlreadyExistsError when there is another one, alive.

        It is the driver as soon as this returns, and nothing is awaited in between.
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
        """It is not the driver any more; False when it was not: another one has its place by then."""
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
        # Meanwhile the holder may have left, or its place may have gone to its own next connection.
        now = self._holders.get(key)
        if now is not None and (alive or now is not holder):
            raise _taken(key)

    @staticmethod
    def _evict(holder: Session) -> None:
        log.warning(
            "a driver's place goes to a newer connection",
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


_LAST_WORDS: Final = 1.0  # seconds; a driver that does not read hears nothing, and holds nobody up
_V0_TOMBSTONES: Final = 1000  # of one connection: its numbers mean nothing on another


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Takes drivers in, and keeps each until its end."""

    access: Access
    surroundings: EngineContext
    registry: Registry
    tombstones: Tombstones
    ready: Callable[[Session], None]  # a driver was taken
    refused: Callable[[], None]  # one was not
    closing: Callable[[], bool]
    limits: Limits

    async def serve(self, context: Context, dialect: Dialect) -> None:
        """One stream, from its beginning to its end."""
        # By itself: a first write that is given up half way would leave gRPC unable to end the call.
        await context.send_initial_metadata(())
        try:
            identity = admit(self.access, context).name
            with self.limits.place(identity):
                session = await self._receive(context, dialect, identity)
                await session.run()
        except CloudgraftError as error:
            self.refused()
            level = logging.DEBUG if isinstance(error, RateLimitedError) else logging.INFO  # those come in thousands
            log.log(level, "a driver was not taken: %s", error.message, extra={"peer": context.peer()})
            await _turn_away(context, dialect.reject(error), error)
        else:
            if session.ending is not None:
                await _turn_away(context, None, session.ending)

    async def _receive(self, context: Context, dialect: Dialect, identity: str) -> Session:
        """The driver's session, and nothing else: what came with its first word is long, and not kept until the end."""
        introduction = await self._shake_hands(context, dialect)
        session = Session(
            context=context,
            dialect=dialect,
            info=introduction.info,
            identity=identity,
            tombstones=self.tombstones if dialect.beats else Tombstones(_V0_TOMBSTONES),
            surroundings=self.surroundings,
        )
        await self._admit(session, introduction)
        return session

    async def _shake_hands(self, context: Context, dialect: Dialect) -> Introduction:
        limit = self.surroundings.settings.handshake
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
        # From here on nothing is awaited until it is ready: no operation may go before its welcome.
        try:
            admit(self.access, session.context, session.key)  # it may have lost its right meanwhile
            if self.closing():
                raise UnavailableError(
                    "the hub is closing: come back later", retry_after=self.surroundings.settings.grace
                )
        except CloudgraftError:
            self.registry.release(session)
            raise
        session.begin(introduction.late)
        self.ready(session)


async def _turn_away(context: Context, words: bytes | None, error: CloudgraftError) -> None:
    """Tells the driver why, if it listens, and ends the call."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS):
            if words is not None:
                with contextlib.suppress(grpc.aio.BaseError, grpc.aio.UsageError, asyncio.InvalidStateError):
                    await context.write(words)
            try:
                await abort(context, error)
            except grpc.aio.AbortError:
                raise
            except grpc.aio.BaseError:
                log.debug("a driver that was sent away was gone already", extra={"peer": context.peer()})
