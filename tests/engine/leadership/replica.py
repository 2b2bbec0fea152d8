"""Replicas that want to lead, and what they are told, for tests on a timer that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cloudgraft.engine.leadership import Leadership, LeaseLike
from tests.engine.hand_timer import HandTimer

TTL = 10.0
USABLE = 8.0  # the lease without its margin
LOST = "fenced: the lease is lost, and another process may lead"
LATE = "fenced: the lease ended before it could be renewed"


class Replica:
    """A process that wants to lead, and what it was told."""

    def __init__(self, lease: LeaseLike, timer: HandTimer) -> None:
        self.told: list[str] = []
        self.election: Callable[[], object] = lambda: None  # what on_elected does: returns, raises, or gives an Event
        self.aftermath: asyncio.Event | None = None  # what on_fenced waits for
        self.leadership = Leadership(
            lease, on_elected=self._elected, on_fenced=self._fenced, timer=timer, jitter=lambda: 0.5
        )

    async def _elected(self, epoch: int) -> None:
        assert self.leadership.is_leader()
        self.told.append(f"elected {epoch}")
        wait = self.election()
        if isinstance(wait, asyncio.Event):
            try:
                await wait.wait()
            except asyncio.CancelledError:
                self.told.append("cancelled")
                raise

    async def _fenced(self, reason: str) -> None:
        assert not self.leadership.is_leader()
        self.told.append(f"fenced: {reason}")
        if self.aftermath is not None:
            await self.aftermath.wait()

    def __bool__(self) -> bool:
        return self.leadership.is_leader()
