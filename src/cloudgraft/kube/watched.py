"""Keeps a copy in memory of all objects of a kind, updated by a watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Generic, Protocol

from cloudgraft.kube.errors import ExpiredError
from cloudgraft.kube.objects import Change, ChangeType, Kind, Listing, V
from cloudgraft.sdk.common.backoff import Backoff
from cloudgraft.sdk.errors import CloudgraftError

_LOG = logging.getLogger("cloudgraft.kube")
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0
_SHORTEST_WATCH = 1.0


class Source(Protocol):
    """The calls of a client that a copy needs; see :class:`cloudgraft.kube.client.KubeClient`."""

    async def list(self, kind: Kind[V]) -> Listing[V]:
        """All objects of a kind."""

    def watch(self, kind: Kind[V], *, version: str) -> AsyncGenerator[Change[V], None]:
        """Changes after a version."""


class Watched(Generic[V]):
    """The objects of one kind as the API last reported them.

    A watch that ends is resumed; after any error everything is listed again, so that a missed event causes no lasting
    error. While the API is away the copy stays as it was: it can be old, so actions based on it must be harmless when
    done twice or too late.
    """

    def __init__(self, source: Source, kind: Kind[V], *, on_change: Callable[[], None]) -> None:
        self._source = source
        self._kind = kind
        self._on_change = on_change
        self._objects: dict[str, V] = {}
        self._doing = "list"  # or "watch"
        self._trouble = ""  # which of the two fails; each can fail while the other works
        self._heard_at: float | None = None  # the loop's time
        self._now: Callable[[], float] | None = None  # the loop's clock, once it runs
        self.is_synced = False  # whether everything was listed at least once

    @property
    def objects(self) -> Mapping[str, V]:
        """All objects, by :attr:`Object.key`. A live view: it changes at the next await."""
        return self._objects

    def heard_within(self, seconds: float) -> bool:
        """Whether the API has sent anything in the last seconds; it does so about once a minute without changes.

        Any thread may ask: a scrape of the metrics has no event loop.
        """
        return self._heard_at is not None and self._now is not None and self._now() - self._heard_at <= seconds

    async def run(self) -> None:
        """Keeps the copy up to date until cancelled."""
        # A watch is stable after a while, not just because it could be listed: that is the costly part.
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, spread=0.5, stable_after=_LONGEST_PAUSE)
        clock = asyncio.get_running_loop()
        while True:
            began = clock.time()
            try:
                await self._follow(await self._relist())
            except ExpiredError:
                _LOG.debug("the watch fell too far behind; listing again", extra={"kind": self._kind.plural})
            except CloudgraftError as error:
                self._tell(error)
            await asyncio.sleep(backoff.after(clock.time() - began))

    async def _relist(self) -> str:
        self._doing = "list"
        listing = await self._source.list(self._kind)
        self._hear()
        self._objects = {item.key: item for item in listing.items}
        self.is_synced = True
        self._on_change()
        return listing.version

    async def _follow(self, version: str) -> None:
        """Watches from version to version until a watch fails."""
        clock = asyncio.get_running_loop()
        self._doing = "watch"
        while True:
            started = clock.time()
            async with aclosing(self._source.watch(self._kind, version=version)) as changes:
                async for change in changes:
                    self._hear()
                    version = change.version
                    self._apply(change)
            self._hear()  # a regular end is a response too
            if clock.time() - started < _SHORTEST_WATCH:  # a server or proxy that ends every watch at once
                await asyncio.sleep(_SHORTEST_WATCH)

    def _apply(self, change: Change[V]) -> None:
        new = change.object
        if new is None:
            return
        if change.type is ChangeType.DELETED:
            self._objects.pop(new.key, None)
            self._on_change()
            return
        is_news = self._objects.get(new.key) != new  # most changes are heartbeats, in fields that we do not read
        self._objects[new.key] = new
        if is_news:
            self._on_change()

    def _hear(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._heard_at = self._now()
        if self._trouble == self._doing:
            _LOG.info("the Kubernetes API is back", extra={"kind": self._kind.plural})
            self._trouble = ""

    def _tell(self, error: CloudgraftError) -> None:
        """Warns once per outage, not once per attempt."""
        level = logging.DEBUG if self._trouble else logging.WARNING
        _LOG.log(level, "trouble with the Kubernetes API: %s", error, extra={"kind": self._kind.plural})
        self._trouble = self._doing
