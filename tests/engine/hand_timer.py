"""A timer that a test moves by hand, and a lease on it that several replicas fight for."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.lease.lease_row import LeaseRow, LeaseWatch


class HandTimer:
    """Time stands still until :meth:`advance`. ``rate``: how fast this clock runs."""

    def __init__(self, rate: float = 1.0) -> None:
        self._rate = rate
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
        self._time += seconds * self._rate
        for waker, when in self._sleepers.items():
            if when <= self._time and not waker.done():
                waker.set_result(None)

    def next_waking(self) -> float:
        """In how many seconds the next sleeper wakes."""
        return max(0.0, min(self._sleepers.values(), default=math.inf) - self._time) / self._rate


async def pump() -> None:
    """Lets everything run that can run without time passing."""
    for _ in range(40):
        await asyncio.sleep(0)


async def pass_time(timer: HandTimer, seconds: float, *others: HandTimer) -> None:
    """Time passes as it does for a process that runs: nobody wakes late."""
    timers, left = (timer, *others), seconds
    await pump()
    while (step := min(each.next_waking() for each in timers)) < left:
        for each in timers:
            each.advance(step)
        left -= step
        await pump()
    for each in timers:
        each.advance(left)
    await pump()


@dataclass(slots=True)
class LeaseTable:
    """What the database holds: a counter, and no time."""

    ttl: float = 10.0
    holder: str = ""
    epoch: int = 0
    renewals: int = 0
    server: str = "primary"
    taken_on: str = ""

    def is_taken(self) -> bool:
        return bool(self.holder)

    def row(self) -> LeaseRow:
        return LeaseRow(
            server=self.server,
            taken_on=self.taken_on,
            holder=self.holder,
            epoch=self.epoch,
            renewals=self.renewals,
            seconds=self.ttl,
        )


class TableLease:
    """One replica's lease, by a clock of its own. It can be made to fail, or to hang: before the database acts, or
    after."""

    def __init__(self, table: LeaseTable, name: str, timer: HandTimer) -> None:
        self._table = table
        self.holder = name
        self._timer = timer
        self._watch = LeaseWatch(table.ttl)
        self._claim = (0, "")  # epoch and server
        self.clock = DatabaseClock(bound=60.0)
        self.is_in_line = False
        self.seconds = table.ttl
        self.log: list[str] = []
        self.error: Exception | None = None
        self.before: asyncio.Event | None = None  # a question waits for it on its way there
        self.after: asyncio.Event | None = None  # an answer waits for it on its way back

    def is_next(self) -> bool:
        return self.is_in_line

    async def acquire(self) -> int | None:
        sent = self._timer.now()
        await self._there("acquire")
        table = self._table
        self._watch.see(table.row(), self._timer.now())
        now = self._timer.now()
        won = self._watch.is_still_ours(now) or self._watch.seconds_left(now) <= 0
        if won:
            table.holder, table.epoch, table.renewals = self.holder, table.epoch + 1, 0
            table.taken_on = table.server
            self._claim = (table.epoch, table.server)
            self._watch.ask(self.holder, *self._claim)
        epoch = table.epoch
        await self._back()
        if not won:
            return None
        self._watch.confirm(sent)
        return epoch

    async def renew(self) -> bool:
        sent = self._timer.now()
        await self._there("renew")
        kept = self._is_ours()
        if kept:
            self._table.renewals += 1
        await self._back()
        if kept:
            self._watch.confirm(sent)
        return kept

    async def release(self) -> None:
        await self._there("release")
        if self._is_ours():
            self._table.holder = ""
        await self._back()

    def _is_ours(self) -> bool:
        return (self._table.holder, self._table.epoch, self._table.server) == (self.holder, *self._claim)

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
