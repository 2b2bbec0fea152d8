"""Deadlines of many operations with one timer: nearly all of them are answered in time, and then it costs nothing."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Container
from typing import Final

__all__ = ["Deadlines"]

_TIDY_AT: Final = 1000  # entries, of which most may be over


class Deadlines:
    """Calls back at the time of each number that is still pending by then. Of the others it keeps nothing for long."""

    def __init__(self, pending: Container[int], due: Callable[[int, float], None]) -> None:
        """``due`` is called with the number and with the time that :meth:`add` gave for it."""
        self._pending = pending
        self._due = due
        self._loop = asyncio.get_running_loop()  # asked for once: each time is a call of the system
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tidy_at = _TIDY_AT

    def add(self, number: int, seconds: float) -> float:
        """From now on, so many seconds; gives the time of the loop at which it is due."""
        when = self._loop.time() + seconds
        heapq.heappush(self._heap, (when, number))
        if self._timer is None or when < self._timer.when():
            self._set_timer(when)
        if len(self._heap) > self._tidy_at:
            self._heap = [entry for entry in self._heap if entry[1] in self._pending]
            heapq.heapify(self._heap)
            self._tidy_at = max(_TIDY_AT, 2 * len(self._heap))
        return when

    def close(self) -> None:
        """No more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][1] not in self._pending):
            when, number = heapq.heappop(self._heap)
            if when <= now and number in self._pending:
                self._due(number, when)
        if self._heap:
            self._set_timer(self._heap[0][0])
