"""Bounds the machines that checks have at the same time, and remembers how many the cloud allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Room for machines of checks that run side by side."""

    def __init__(self, machines: int) -> None:
        """``machines`` is the most at the same time."""
        self._most = machines
        self._taken = 0
        self._changed = asyncio.Condition()
        self.allowed: int | None = None  # what a quota allowed; None while no quota was met

    @asynccontextmanager
    async def taken(self, machines: int) -> AsyncIterator[None]:
        """Holds room for so many machines. One who needs more than there is gets all of it."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._taken or self._taken + machines <= self._limit)
            self._taken += machines
        try:
            yield
        finally:
            async with self._changed:
                self._taken -= machines
                self._changed.notify_all()

    def met_quota(self, machines: int) -> None:
        """Notes that the cloud refused one more than so many machines."""
        self.allowed = machines if self.allowed is None else max(self.allowed, machines)

    def is_exceeded_by(self, more: int) -> bool:
        """Whether so many machines beside those of the running checks are more than there may be."""
        return self._taken + more > self._most

    @property
    def _limit(self) -> int:
        return self._most if self.allowed is None else min(self._most, self.allowed)
