"""A leader as a process of its own, to be stopped with SIGSTOP: it says at each moment whether it would call a cloud.

Each line is the time of the check, by the clock that the parent can read too, and what came of it.
"""

from __future__ import annotations

import asyncio
import sys

from cloudgraft.engine.leadership import Leadership
from cloudgraft.engine.timer import SystemTimer


class OwnLease:
    """A database that always answers, and never gives the lease to another: only the leader's own clock can fence."""

    seconds = float(sys.argv[1])
    epoch = 0

    async def acquire(self) -> int | None:
        self.epoch += 1
        return self.epoch

    async def renew(self) -> bool:
        return True

    async def release(self) -> None:
        pass

    async def find_leader(self) -> None:
        pass


def say(*words: object) -> None:
    sys.stdout.write(f"{SystemTimer().now()!r} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


async def main() -> None:
    async def elected(epoch: int) -> None:
        say("elected", epoch)

    async def fenced(reason: str) -> None:
        say("fenced")

    leadership = Leadership(OwnLease(), on_elected=elected, on_fenced=fenced)
    await leadership.start()
    while True:
        before = SystemTimer().now()
        leads = leadership.is_leader()
        sys.stdout.write(f"{before!r} {'call' if leads else 'refrain'}\n")
        sys.stdout.flush()
        await asyncio.sleep(0.002)


asyncio.run(main())
