"""A leader as a process of its own, to be stopped or killed: it says at each moment whether it would call a cloud.

    python -m tests.engine.stopped_leader SECONDS [URL]

The lease is one of PostgreSQL, or one that nobody else can take. Each line is a time, by the clock that the parent can
read too, and what happened: a check is told with the time before it.
"""

from __future__ import annotations

import asyncio
import sys

from cloudgraft.engine.clock import SystemTimer
from cloudgraft.engine.leadership import Leadership, LeaseLike
from cloudgraft.store.databases.clock import DatabaseClock
from cloudgraft.store.lease.election import Lease


class OwnLease:
    """A database that always answers, and never gives the lease to another: only the leader's own clock can fence."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.clock = DatabaseClock()
        self.epoch = 0

    def is_next(self) -> bool:
        return False

    async def acquire(self) -> int | None:
        self.epoch += 1
        return self.epoch

    async def renew(self) -> bool:
        return True

    async def release(self) -> None:
        pass

    async def find_leader(self) -> None:
        pass


def say(at: float, *words: object) -> None:
    sys.stdout.write(f"{at!r} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


async def main(seconds: float, url: str = "") -> None:
    clock = SystemTimer()

    async def elected(epoch: int) -> None:
        say(clock.now(), "elected", epoch)

    async def fenced(reason: str) -> None:
        say(clock.now(), "fenced", reason)

    lease: LeaseLike = Lease(url, seconds=seconds, holder="the child") if url else OwnLease(seconds)
    leadership = Leadership(lease, on_elected=elected, on_fenced=fenced)
    await leadership.start()
    while True:
        before, epoch = clock.now(), leadership.epoch
        say(before, *(("call", epoch) if epoch is not None else ("refrain",)))
        await asyncio.sleep(0.002)


asyncio.run(main(float(sys.argv[1]), *sys.argv[2:]))
