"""How long an event loop was held up."""

from __future__ import annotations

import asyncio
import time

_EVERY = 0.002  # seconds


class Watchdog:
    """Sleeps for a moment, again and again, and notes how much too late it wakes up."""

    def __init__(self) -> None:
        self._late = self._own = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            began, used = time.perf_counter(), time.process_time()
            await asyncio.sleep(_EVERY)
            late = time.perf_counter() - began - _EVERY
            self._late = max(self._late, late)
            # On a machine with too few cores others are at work in between. What this process did not do while it was
            # late is not its fault.
            self._own = max(self._own, min(late, time.process_time() - used))

    def take(self) -> dict[str, float]:
        """The longest stall since the last time, and the longest that this process itself was busy in one."""
        taken = {"stall": self._late, "own_stall": self._own}
        self._late = self._own = 0.0
        return taken
