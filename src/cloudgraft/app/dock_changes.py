"""Has an engine look at a cloud when its driver has come, has gone, or has told something late."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.drivers.router.driver import drivers_within
from cloudgraft.engine.engine import Engine

__all__ = ["Looks"]

_AT_MOST_EVERY: Final = 1.0  # seconds between two looks for one driver, however often it comes and goes


class Looks:
    """A listener of a hub. Without it the engine would find out with its next list, which may be far off."""

    def __init__(self, engine: Engine, *, at_most_every: float = _AT_MOST_EVERY) -> None:
        self._engine = engine
        self._pause = at_most_every
        self._resting: dict[Key, bool] = {}  # drivers looked for just now, and whether they have called again since

    def __call__(self, key: Key) -> None:
        """Something has happened to the driver of these machines."""
        if key in self._resting:
            self._resting[key] = True
            return
        self._resting[key] = False
        asyncio.get_running_loop().call_later(self._pause, self._rested, key)
        self._look(key)

    def _rested(self, key: Key) -> None:
        if self._resting.pop(key):
            self(key)

    def _look(self, key: Key) -> None:
        for worker in self._engine.workers.values():
            if any(isinstance(one, DockDriver) and one.key == key for one in drivers_within(worker.driver)):
                worker.nudge()
