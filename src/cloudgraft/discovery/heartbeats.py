"""Heartbeats, written together: a thousand agents cost a few transactions a second, not a hundred."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from cloudgraft.discovery.model import Heartbeat
from cloudgraft.sdk.errors import NotFoundError, UnavailableError

__all__ = ["Heartbeats"]

Write = Callable[[Mapping[str, Heartbeat]], Awaitable[set[str]]]  # gives back the ids of clusters that are not there


class Heartbeats:
    """Takes heartbeats one by one. The first is written at once; what comes within ``gather`` seconds, together.

    Whoever sent one waits until it is written.
    """

    def __init__(self, write: Write, *, gather: float) -> None:
        self._write = write
        self._gather = gather
        self._waiting: dict[str, tuple[Heartbeat, asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def add(self, cluster: str, beat: Heartbeat) -> None:
        """Returns once it is written. NotFoundError when there is no such cluster."""
        if self._is_closed:
            raise UnavailableError("discovery is stopping")
        known = self._waiting.get(cluster)
        done = known[1] if known else asyncio.get_running_loop().create_future()
        self._waiting[cluster] = (beat, done)  # a second one takes the place of the first
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        await asyncio.shield(done)

    async def close(self) -> None:
        """Writes what waits, and takes no more."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            await self._flush(waiting)
            if not self._is_closed:
                await asyncio.sleep(self._gather)

    async def _flush(self, waiting: Mapping[str, tuple[Heartbeat, asyncio.Future[None]]]) -> None:
        try:
            missing = await self._write({cluster: beat for cluster, (beat, _) in waiting.items()})
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            for _, done in waiting.values():
                _fail(done, error)
            return
        for cluster, (_, done) in waiting.items():
            if cluster in missing:
                _fail(done, NotFoundError(f"there is no cluster {cluster}: declare it first"))
            elif not done.done():
                done.set_result(None)


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # whoever sent it may have gone: then nobody asks, and that is no fault
