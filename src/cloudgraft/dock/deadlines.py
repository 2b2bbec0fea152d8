"""Deadlines of many operations with one timer: nearly all of them are answered in time, and then it costs nothing."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

__all__ = ["Deadline", "Deadlines"]

_TIDY_AT: Final = 1000  # entries, of which most may be over


class Deadline:
    """One of them; it holds on to nothing once it is over."""

    __slots__ = ("due",)

    def __init__(self, due: Callable[[], None]) -> None:
        self.due: Callable[[], None] | None = due

    def cancel(self) -> None:
        """It is met."""
        self.due = None


class Deadlines:
    """Calls back at the time of each, unless it was met by then."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._tidy_at = _TIDY_AT

    def add(self, seconds: float, due: Callable[[], None]) -> Deadline:
        """From now on, so many seconds."""
        loop = asyncio.get_running_loop()
        when, deadline = loop.time() + seconds, Deadline(due)
        heapq.heappush(self._heap, (when, next(self._order), deadline))
        if self._timer is None or when < self._timer.when():
            self._set_timer(loop, when)
        if len(self._heap) > self._tidy_at:
            self._heap = [kept for kept in self._heap if kept[2].due is not None]
            heapq.heapify(self._heap)
            self._tidy_at = max(_TIDY_AT, 2 * len(self._heap))
        return deadline

    def close(self) -> None:
        """No more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(when, self._run)

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].due is None):
            due = heapq.heappop(self._heap)[2].due
            if due is not None:
                due()
        if self._heap:
            self._set_timer(loop, self._heap[0][0])
