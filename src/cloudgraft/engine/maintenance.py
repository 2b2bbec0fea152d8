"""Deletes old records and events from the journal, and probes a journal that failed."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final

from cloudgraft.engine.clock import SystemClock
from cloudgraft.engine.context import EngineContext
from cloudgraft.engine.guards import HOUR
from cloudgraft.engine.new_records import happened
from cloudgraft.engine.writer import Writer
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.journal import Journal
from cloudgraft.store.records import Change

log = logging.getLogger("cloudgraft.engine")

_PROBE: Final = 1.0  # seconds
_CLEAN_EVERY: Final = 60.0
_JUMP: Final = 60.0  # seconds by which the wall clock must be off to be reported


class Maintenance:
    """Maintains the journal."""

    def __init__(self, journal: Journal, writer: Writer, context: EngineContext) -> None:
        self._journal = journal
        self._writer = writer
        self._context = context
        self._is_clock_off = False

    async def run(self) -> None:
        """Runs until cancelled."""
        cleaned = -math.inf
        while True:
            await asyncio.sleep(_PROBE)
            try:
                await self._writer.probe()
                await self._watch_clock()
                if self._context.clock.now() - cleaned >= _CLEAN_EVERY:
                    cleaned = self._context.clock.now()
                    await self.clean()
            except CloudgraftError as error:
                log.debug("maintenance waits for the journal", extra={"error": error.message})
            except Exception:
                log.exception("maintenance failed")

    async def _watch_clock(self) -> None:
        """Reports a wall clock that was set: the engine's clock follows it slowly."""
        clock = self._context.clock
        if not isinstance(clock, SystemClock):
            return
        was_off, self._is_clock_off = self._is_clock_off, abs(clock.offset) > _JUMP
        if self._is_clock_off and not was_off:
            way = "ahead of" if clock.offset > 0 else "behind"
            message = (
                f"the wall clock is {abs(clock.offset) / 60:.0f} minutes {way} the engine's clock: it was set, or was "
                "wrong at the latest start. No machine is late for that; the engine's clock follows it slowly"
            )
            event = happened("clock", clock.now(), message, offset=round(clock.offset, 1))
            await self._writer.write(lambda: Change(events=(event,)))

    async def clean(self) -> None:
        """Deletes records and events past their retention, and writes the clock's progress."""
        clock = self._context.clock
        if isinstance(clock, SystemClock):
            await self._writer.write(lambda: Change(progress=clock.progress()))
        now, settings = self._context.clock.now(), self._context.settings
        kept = max(HOUR, settings.keep_events.total_seconds())  # guards count events of the last hour
        gone, events = now - settings.keep_gone.total_seconds(), now - kept
        while await self._journal.purge(gone_before=gone, events_before=events):
            pass
        self._context.fleet.forget(gone)
