"""A timer that a test moves by hand, and a lease on it that several replicas fight for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cloudgraft.store.journal import JournalUnavailableError


class HandTimer:
    """Time stands still until :meth:`advance`."""

    def __init__(self) -> None:
        self._time = 1000.0
        self._sleepers: dict[asyncio.Future[None], float] = {}

    def now(self) -> float:
        return self._time

    async def sleep(self, seconds: float) -> None:
        waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers[waker] = self._time + seconds
        try:
            await waker
        finally:
            del self._sleepers[waker]

    def advance(self, seconds: float) -> None:
        """Time passes, and nobody has run meanwhile: as if the process had been stopped."""
        self._time += seconds
        for waker, when in self._sleepers.items():
            if when <= self._time and not waker.done():
                waker.set_result(None)

    def next_waking(self) -> float:
        """In how many seconds the next sleeper wakes."""
        return min(self._sleepers.values()) - self._time


async def pump() -> None:
    """Lets everything run that can run without time passing."""
    for _ in range(40):
        await asyncio.sleep(0)


async def pass_time(timer: HandTimer, seconds: float) -> None:
    """Time passes as it does for a process that runs: nobody wakes late."""
    end = timer.now() + seconds
    await pump()
    while timer._sleepers and timer.now() + timer.next_waking() < end:
        timer.advance(max(0.0, timer.next_waking()))
        await pump()
    timer.advance(end - timer.now())
    await pump()


@dataclass(slots=True)
class LeaseTable:
    """What the database holds."""

    timer: HandTimer
    ttl: float = 10.0
    holder: str = ""
    epoch: int = 0
    ends: float = 0.0

    def is_taken(self) -> bool:
        return bool(self.holder) and self.timer.now() < self.ends


class TableLease:
    """One replica's lease. It can be made to fail, or to hang: before the database acts, or after."""

    def __init__(self, table: LeaseTable, name: str) -> None:
        self._table = table
        self._name = name
        self._epoch = 0
        self.seconds = table.ttl
        self.log: list[str] = []
        self.error: Exception | None = None
        self.before: asyncio.Event | None = None  # a question waits for it on its way there
        self.after: asyncio.Event | None = None  # an answer waits for it on its way back

    async def acquire(self) -> int | None:
        await self._there("acquire")
        table = self._table
        won = not table.is_taken() or table.holder == self._name
        if won:
            table.holder, table.epoch, table.ends = self._name, table.epoch + 1, table.timer.now() + table.ttl
            self._epoch = table.epoch
        epoch = table.epoch
        await self._back()
        return epoch if won else None

    async def renew(self) -> bool:
        await self._there("renew")
        table = self._table
        kept = table.is_taken() and (table.holder, table.epoch) == (self._name, self._epoch)
        if kept:
            table.ends = table.timer.now() + table.ttl
        await self._back()
        return kept

    async def release(self) -> None:
        await self._there("release")
        if (self._table.holder, self._table.epoch) == (self._name, self._epoch):
            self._table.holder = ""
        await self._back()

    async def find_leader(self) -> LeaseTable | None:
        if self.error is not None:
            raise self.error
        return self._table if self._table.is_taken() else None

    async def _there(self, what: str) -> None:
        self.log.append(what)
        if self.before is not None:
            await self.before.wait()
        if self.error is not None:
            raise self.error

    async def _back(self) -> None:
        if self.after is not None:
            await self.after.wait()


def away() -> JournalUnavailableError:
    return JournalUnavailableError("the database is away")
