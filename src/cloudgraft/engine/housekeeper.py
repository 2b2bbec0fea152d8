"""What is done once in a while for all clouds: what is old is forgotten, and a journal that failed is tried again."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from cloudgraft.engine.surroundings import Surroundings
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.journal import Journal

__all__ = ["Housekeeper"]

log = logging.getLogger("cloudgraft.engine")

_PROBE: Final = 1.0  # seconds
_CLEAN_EVERY: Final = 60.0


class Housekeeper:
    """Looks after the journal."""

    def __init__(self, journal: Journal, writer: Writer, around: Surroundings) -> None:
        self._journal = journal
        self._writer = writer
        self._around = around

    async def run(self) -> None:
        """Works until cancelled."""
        cleaned = -math.inf
        while True:
            await asyncio.sleep(_PROBE)
            try:
                await self._writer.probe()
                if self._around.clock.now() - cleaned >= _CLEAN_EVERY:
                    cleaned = self._around.clock.now()
                    await self.clean()
            except CloudgraftError as error:
                log.debug("housekeeping waits for the journal", extra={"error": error.message})
            except Exception:
                log.exception("housekeeping failed")

    async def clean(self) -> None:
        """Forgets what is older than it has to be kept."""
        now, settings = self._around.clock.now(), self._around.settings
        gone, events = now - settings.keep_gone.total_seconds(), now - settings.keep_events.total_seconds()
        while await self._journal.purge(gone_before=gone, events_before=events):
            pass
        self._around.fleet.forget(gone)
