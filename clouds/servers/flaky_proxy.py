"""A proxy that breaks connections on command, for clouds whose own server cannot do that.

It knows nothing of what passes: bytes go to and fro. A fault is armed with a word; the next request that has it in its
bytes gets the fault, once. To see into TLS the proxy speaks it itself, with a certificate of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["Breakage", "FlakyProxy"]

_CHUNK: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)  # linger for no time: closing is then a reset


class Breakage(enum.Enum):
    """What can happen to a request."""

    LOST_ANSWER = "lost answer"  # it is carried out; the connection is reset when the answer begins to come
    LOST_REQUEST = "lost request"  # the connection is reset, and the other side never sees it
    HANG = "hang"  # it is carried out, and no byte of the answer comes


@dataclass(slots=True)
class _Armed:
    word: bytes
    breakage: Breakage
    done: Future[None]


class FlakyProxy:
    """Between a client and one server, on a port of its own. Use :meth:`run`."""

    def __init__(
        self,
        target: tuple[str, int],
        *,
        inward: ssl.SSLContext | None = None,
        outward: ssl.SSLContext | None = None,
    ) -> None:
        self._target = target
        self._inward = inward  # how clients are served
        self._outward = outward  # how the server is called
        self._armed: list[_Armed] = []
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.is_refusing = False  # True: every connection is reset as soon as it is there

    @contextmanager
    def run(self) -> Iterator[FlakyProxy]:
        """Serves until the context is left."""
        ready: Future[int] = Future()
        thread = threading.Thread(target=self._serve, args=(ready,), name="flaky-proxy", daemon=True)
        thread.start()
        self.port = ready.result(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(10)

    def arm(self, word: bytes, breakage: Breakage) -> Future[None]:
        """The next request with that word in it gets the fault; the future is done when it has happened."""
        armed = _Armed(word, breakage, Future())
        with self._lock:
            self._armed.append(armed)
        return armed.done

    def disarm(self) -> None:
        """Forgets faults that have not happened."""
        with self._lock:
            self._armed.clear()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._met, "127.0.0.1", 0, ssl=self._inward))
        ready.set_result(int(server.sockets[0].getsockname()[1]))
        self._loop.run_forever()
        server.close()
        for writer in set(self._writers):
            writer.transport.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            _reset(writer)
            return
        try:
            server = await asyncio.open_connection(*self._target, ssl=self._outward)
        except OSError:
            _reset(writer)
            return
        fate: list[Breakage] = []
        both = {writer, server[1]}
        self._writers |= both
        answers = asyncio.ensure_future(self._answers(server[0], writer, fate))
        try:
            await self._requests(reader, server[1], fate)
        finally:
            if Breakage.HANG not in fate:
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await answers
            answers.cancel()
            _reset(writer)
            server[1].close()
            self._writers -= both

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, fate: list[Breakage]) -> None:
        tail = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(_CHUNK):
                tail = (tail + data)[-2 * _CHUNK :]
                if not fate and (breakage := self._triggered(tail)) is not None:
                    fate.append(breakage)
                    if breakage is Breakage.LOST_REQUEST:
                        server.transport.abort()
                        return
                server.write(data)
                await server.drain()
            if not fate:
                server.close()

    async def _answers(self, server: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: list[Breakage]) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await server.read(_CHUNK):
                if Breakage.LOST_ANSWER in fate:
                    _reset(writer)
                    return
                if Breakage.HANG in fate:
                    continue
                writer.write(data)
                await writer.drain()
        if Breakage.HANG not in fate:
            _reset(writer)

    def _triggered(self, data: bytes) -> Breakage | None:
        with self._lock:
            found = next((one for one in self._armed if one.word in data), None)
            if found is not None:
                self._armed.remove(found)
        if found is None:
            return None
        found.done.set_result(None)
        return found.breakage


def _reset(writer: asyncio.StreamWriter) -> None:
    if (raw := writer.get_extra_info("socket")) is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
