"""Calls a server without a pause, over a connection that is kept and over new ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

from cloudgraft.client import CloudConfig, Connection
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

__all__ = ["Callers"]

_PAUSE: Final = 0.02  # seconds between two calls: there are others on this machine

Connect = Callable[[], Connection]


def connecting(config: CloudConfig, lock: threading.Lock) -> Connect:
    """Makes connections with the files that are there at the moment."""

    def connect() -> Connection:
        with lock:
            return Connection(config)

    return connect


class Callers:
    """Two of them, in a thread of their own, from the making of this until it is stopped."""

    def __init__(self, config: CloudConfig, lock: threading.Lock) -> None:
        """Starts them; the files of the config are read under the lock."""
        self.kept = 0  # calls that were answered over the connection that is kept
        self.new = 0  # calls that were answered over a new connection each
        self.longest = 0.0  # seconds
        self.failures: list[str] = []
        self._connect = connecting(config, lock)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="callers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends them, after the calls that are under way."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raises AssertionError when a call has failed, or when they have ended."""
        assert not self.failures, f"{len(self.failures)} calls failed; the first: {self.failures[0]}"
        assert self._thread.is_alive() or self._stop.is_set(), "the callers have ended"

    async def _run(self) -> None:
        await asyncio.gather(self._over_one(), self._over_new_ones())

    async def _over_one(self) -> None:
        async with self._connect() as connection:
            while not self._stop.is_set():
                self.kept += await self._call(connection, "the connection that is kept")
                await asyncio.sleep(_PAUSE)

    async def _over_new_ones(self) -> None:
        while not self._stop.is_set():
            async with self._connect() as connection:
                self.new += await self._call(connection, "a new connection")
            await asyncio.sleep(_PAUSE)

    async def _call(self, connection: Connection, over: str) -> bool:
        begin = time.monotonic()
        try:
            await connection.ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse)
        except CloudgraftError as error:
            self.failures.append(f"over {over}: {error}")
            return False
        self.longest = max(self.longest, time.monotonic() - begin)
        return True
