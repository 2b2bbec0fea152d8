"""The wire between one replica and the database: it can hold back what either side sends, as a network does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

_SOCKET = ".s.PGSQL.5432"  # the name that PostgreSQL's clients look for in a directory


class Wire:
    """Passes everything on to the database in another directory, connection by connection.

    What was sent while it held arrives when it lets go: also a write whose sender has given up long ago.
    """

    def __init__(self, directory: Path, database: Path) -> None:
        """Clients connect to ``directory``, and reach the server in ``database``, a link that may be changed."""
        self.directory = directory
        self._database = database
        self._flows = asyncio.Event()
        self._flows.set()
        self._serving: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Clients can connect."""
        self.directory.mkdir()
        server = await asyncio.start_unix_server(self._serve, self.directory / _SOCKET)
        try:
            yield
        finally:
            server.close()
            self.let_go()
            for task in self._serving:
                task.cancel()
            if self._serving:
                await asyncio.wait(self._serving)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with contextlib.closing(to_client), contextlib.suppress(OSError, asyncio.CancelledError):
            await self._flows.wait()
            database, to_database = await asyncio.open_unix_connection(self._database / _SOCKET)
            with contextlib.closing(to_database):
                async with asyncio.TaskGroup() as ways:
                    ways.create_task(self._pass_on(client, to_database))
                    ways.create_task(self._pass_on(database, to_client))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until the source ends; then the other side hears of that."""
        with contextlib.suppress(OSError):
            while piece := await source.read(1 << 16):
                await self._flows.wait()
                sink.write(piece)
                await sink.drain()
        await self._flows.wait()
        sink.close()
