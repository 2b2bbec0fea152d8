"""A network between a driver and its hub that can swallow everything, as a firewall does that forgets a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class BlackHole:
    """Passes bytes on in both directions until it is told to keep them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""

    def swallow(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        self._open.clear()

    def forget(self) -> None:
        """Nothing arrives any more over the connections that there are. New ones are as they should be."""
        self.swallow()
        self._open = asyncio.Event()
        self._open.set()

    def turn_to(self, port: int) -> None:
        """Ends the connections that there are. New ones go to that port; with 0, nowhere."""
        self._port = port
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._port:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink, self._open))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
        try:
            while data := await source.read(65536):
                await is_open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[BlackHole]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()
