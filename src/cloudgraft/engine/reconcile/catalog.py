"""Reads a cloud's machine types and prices, as often as its driver says that they change."""

from __future__ import annotations

import asyncio
import logging

from cloudgraft.engine.clock import Clock
from cloudgraft.engine.groups.desired import Catalog
from cloudgraft.engine.reconcile.calls import Caller
from cloudgraft.sdk.errors import CloudgraftError

log = logging.getLogger("cloudgraft.engine")


class CatalogReader:
    """Keeps the shapes and prices of one cloud. The last answer is valid until the next one."""

    def __init__(self, caller: Caller, clock: Clock) -> None:
        self.known: Catalog | None = None  # None until the cloud has answered
        self.error = ""  # why the latest read failed
        self._caller = caller
        self._clock = clock
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Waits for the first answer, without which groups may not be served; later reads run in the background.

        So a cloud with slow prices is listed as often as any other.
        """
        if self.known is None:
            await self._read()
        elif self._is_due() and self._reading is None:
            self._reading = asyncio.create_task(self._read(), name=f"what {self._caller.settings.name} offers")
            self._reading.add_done_callback(self._done)

    async def done(self) -> None:
        """Waits for a read under way."""
        if self._reading is not None:
            await asyncio.wait({self._reading})

    async def stop(self) -> None:
        """Cancels a read under way."""
        if self._reading is not None:
            self._reading.cancel()
            await self.done()

    def _is_due(self) -> bool:
        return self._clock.now() - self._read_at >= self._caller.traits.catalog_lasts.total_seconds()

    async def _read(self) -> None:
        cloud, now = self._caller.settings.name, self._clock.now()
        try:
            self.known, self._read_at = await self._caller.catalog(), now
            self.error = ""
        except CloudgraftError as error:
            message = f"cloud {cloud} does not report its machine types and prices: {error.message}"
            if message != self.error:  # once, not at every attempt
                log.warning("cannot read a cloud's catalog", extra={"cloud": cloud, "error": error.message})
            self.error = message

    def _done(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled() and reading.exception() is not None:
            log.error("reading the machine types and prices of a cloud failed", exc_info=reading.exception())
