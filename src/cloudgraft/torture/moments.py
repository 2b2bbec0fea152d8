"""Waits for the moment of a kill, by what the server logs and the load does."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict, deque
from typing import Final

from cloudgraft.torture.plan import Kill, Moment
from cloudgraft.torture.server_process import LogLine

_LIFE: Final = 2.0  # seconds of a life that is ended at any time, at most
_PATIENCE: Final = 5.0  # seconds for a moment to come; then the server is killed all the same
_CHANGE: Final = 0.03  # seconds that a change takes, about
_BEYOND: Final = 1.3  # kills also a little later than a call takes
_FIRST_GUESS: Final = 0.1  # seconds of a call to the cloud, before one was seen
_START: Final = 0.5  # seconds of a start
# The state that a call to the cloud begins with, and those that end it.
_CALLS: Final = {Moment.CREATE: "creating", Moment.DELETE: "deleting"}
_ENDS: Final = {"booting": "creating", "running": "creating", "failed": "creating", "gone": "deleting"}


class Moments:
    """Knows when a call to the cloud begins, and how long such calls take."""

    def __init__(self, change_begins: asyncio.Event) -> None:
        self._change_begins = change_begins
        self._begins: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._open: dict[tuple[str, str], float] = {}  # state and machine -> since when
        self._took: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=20))

    def hear(self, line: LogLine) -> None:
        """Reads a line of the server's log."""
        state, machine = str(line.get("state", "")), str(line.get("machine", ""))
        if line.get("kind") != "state" or not machine:
            return
        now = time.monotonic()
        begun = self._open.pop((_ENDS.get(state, ""), machine), None)
        if begun is not None:
            self._took[_ENDS[state]].append(now - begun)
        if state in _CALLS.values():
            self._open[state, machine] = now
            self._begins[state].set()
            self._begins[state].clear()

    async def reached(self, kill: Kill, under_load: asyncio.Event) -> None:
        """Returns at the moment of this kill; ``under_load`` is set when the server serves and the load begins."""
        if kill.moment is Moment.START:
            await asyncio.sleep(kill.delay * _START)
            return
        await under_load.wait()
        if kill.moment is Moment.ANY:
            await asyncio.sleep(kill.delay * _LIFE)
            return
        state = _CALLS.get(kill.moment)
        begins = self._change_begins if state is None else self._begins[state]
        try:
            async with asyncio.timeout(_PATIENCE):
                await begins.wait()
        except TimeoutError:
            return
        await asyncio.sleep(kill.delay * (_CHANGE if state is None else self._typical(state)))

    def _typical(self, state: str) -> float:
        took = self._took[state]
        return _BEYOND * (statistics.median(took) if took else _FIRST_GUESS)
