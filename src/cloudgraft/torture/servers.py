"""Keeps the servers of a run: the one that serves, the one that waits to be the next, and those that are ending.

And connects to the one that serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from cloudgraft.client import Address, CloudConfig, RemoteProvider
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.torture.private_config import Paths
from cloudgraft.torture.server_process import LogLine, ServerProcess

_CALLS: Final = timedelta(seconds=20)  # of an autoscaler that does not mind a slow machine
_LOOK_AGAIN: Final = 0.1  # seconds


class Servers:
    """The servers of one run, of which one serves at a time."""

    def __init__(self, start: Callable[[bool], Awaitable[ServerProcess]], on_line: Callable[[LogLine], None]) -> None:
        self._start = start
        self._on_line = on_line
        self._serving: ServerProcess | None = None
        self._standby: ServerProcess | None = None
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def is_serving(self) -> bool:
        """Whether one of them was let serve, and was not killed since."""
        return self._serving is not None

    async def begin(self, *, with_children: bool) -> ServerProcess:
        """The server that waits already, or a new one; from now on it serves."""
        standby, self._standby = self._standby, None
        server = standby or await self._start(with_children)
        self._serving = server
        await server.begin(self._on_line)
        return server

    async def prepare(self, *, with_children: bool) -> None:
        """Starts the next server, and waits until it waits: a killed server is then back at once."""
        self._standby = await self._start(with_children)
        await self._standby.loaded()

    async def killed(self, server: ServerProcess) -> None:
        """Waits for the end of a server that was killed."""
        await server.ended()
        self._serving = None

    async def bury(self, server: ServerProcess, *, at_once: bool) -> None:
        """Ends what is left of a killed server: at once, or while the next one is starting."""
        ending = asyncio.create_task(server.discard())
        if at_once:
            await asyncio.shield(ending)
        else:
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)

    async def stop(self) -> None:
        """Ends all of them; calls of the one that serves may end."""
        standby, self._standby = self._standby, None
        if standby is not None:
            await standby.discard()
        server, self._serving = self._serving, None
        if server is not None:
            with contextlib.suppress(CloudgraftError):
                await server.stop()
            await server.discard()
        await asyncio.gather(*self._endings, return_exceptions=True)


# -- a client of the one that serves -----------------------------------------------------------------------------------


def connect(paths: Paths) -> RemoteProvider:
    """A client of the server; it need not serve yet."""
    address = Address.parse(f"unix:{paths.socket}")
    return RemoteProvider.connect(CloudConfig(address=address, grpc_timeout=_CALLS))


async def until_served(provider: RemoteProvider, group: str, paths: Paths, patience: float) -> None:
    """Waits until calls are answered: at a first start, the cloud is listed before. Raises UnavailableError."""
    give_up_at = time.monotonic() + patience
    while True:
        try:
            groups = await provider.node_groups()
        except UnavailableError:
            if time.monotonic() >= give_up_at:
                raise
        else:
            if any(one.id == group for one in groups):
                return
            if time.monotonic() >= give_up_at:
                raise UnavailableError(f"the server does not serve group {group}: {last_log(paths)}")
        await asyncio.sleep(_LOOK_AGAIN)


def last_log(paths: Paths) -> str:
    """The last line of the servers' log."""
    with contextlib.suppress(OSError):
        lines = paths.log.read_text("utf-8", "replace").splitlines()
        return lines[-1][:500] if lines else "it logged nothing"
    return "there is no log"
