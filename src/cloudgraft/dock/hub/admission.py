"""How a driver comes in: who it is, whether there is room, and whether the place it wants is free."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc.aio

from cloudgraft.dock.access import admit
from cloudgraft.dock.hub.limits import Limits
from cloudgraft.dock.hub.registry import Registry
from cloudgraft.dock.hub.session import EngineContext, Session
from cloudgraft.dock.ports import Access, Context
from cloudgraft.dock.protocol.dialect import Introduction, Speech, Tombstones
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.server.listener import abort

__all__ = ["Reception"]

log = logging.getLogger("cloudgraft.dock")

_LAST_WORDS: Final = 1.0  # seconds; a driver that does not read hears nothing, and holds nobody up
_V0_TOMBSTONES: Final = 1000  # of one connection: its numbers mean nothing on another


@dataclass(frozen=True, slots=True, kw_only=True)
class Reception:
    """Takes drivers in, and keeps each until its end."""

    access: Access
    surroundings: EngineContext
    registry: Registry
    tombstones: Tombstones
    ready: Callable[[Session], None]  # a driver was taken
    refused: Callable[[], None]  # one was not
    closing: Callable[[], bool]
    limits: Limits

    async def serve(self, context: Context, speech: Speech) -> None:
        """One stream, from its beginning to its end."""
        # By itself: a first write that is given up half way would leave gRPC unable to end the call.
        await context.send_initial_metadata(())
        try:
            identity = admit(self.access, context).name
            with self.limits.place(identity):
                session = await self._receive(context, speech, identity)
                await session.run()
        except CloudgraftError as error:
            self.refused()
            level = logging.DEBUG if isinstance(error, RateLimitedError) else logging.INFO  # those come in thousands
            log.log(level, "a driver was not taken: %s", error.message, extra={"peer": context.peer()})
            await _turn_away(context, speech.reject(error), error)
        else:
            if session.ending is not None:
                await _turn_away(context, None, session.ending)

    async def _receive(self, context: Context, speech: Speech, identity: str) -> Session:
        """The driver's session, and nothing else: what came with its first word is long, and not kept until the end."""
        introduction = await self._shake_hands(context, speech)
        session = Session(
            context=context,
            speech=speech,
            info=introduction.info,
            identity=identity,
            tombstones=self.tombstones if speech.beats else Tombstones(_V0_TOMBSTONES),
            surroundings=self.surroundings,
        )
        await self._admit(session, introduction)
        return session

    async def _shake_hands(self, context: Context, speech: Speech) -> Introduction:
        limit = self.surroundings.settings.handshake
        try:
            async with asyncio.timeout(limit):
                greeting = speech.greeting()
                if greeting is not None:
                    await context.write(greeting)
                data = await context.read()
        except TimeoutError:
            raise DeadlineError(f"the driver did not say who it is within {limit:g} s") from None
        if data is grpc.aio.EOF:
            raise InvalidArgumentError("the driver left before it said who it is")
        return speech.introduction(data)

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
