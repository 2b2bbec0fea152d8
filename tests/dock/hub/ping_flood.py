"""A client made of bytes: as much HTTP/2 as it takes to open a stream and to send pings (RFC 9113)."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from types import TracebackType
from typing import Self

_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY = 0, 1, 4, 6, 7
_LIMIT = 20.0  # seconds


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header(name: str, value: str) -> bytes:
    """Written out, without Huffman's code and without an index (RFC 7541, 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class PingFlood:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS))
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def open_register(self) -> None:
        """Opens the stream of v0, and waits for the hub's first word on it."""
        fields = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/service.Servicegrpc/Register"),
            (":authority", "hub"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
        self._writer.write(frame(_HEADERS, b"".join(header(*each) for each in fields), flags=4, stream=1))
        while (await self._frame())[0] != _DATA:
            pass

    async def ping_until_told_to_stop(self) -> bytes:
        """Pings, one as soon as the other is answered; gives the reason with which the hub ends the connection."""
        for number in range(1000):
            self._writer.write(frame(_PING, struct.pack(">Q", number)))
            kind, payload = -1, b""
            while kind not in {_PING, _GOAWAY}:
                kind, payload = await self._frame()
            if kind == _GOAWAY:
                return payload[8:]
        raise AssertionError("the hub answers every ping")

    async def _frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(_LIMIT):
            head = await self._reader.readexactly(9)
            length = int.from_bytes(head[:3], "big")
            return head[3], await self._reader.readexactly(length)
