"""Runs `cloudgraft serve` with a clock that a test can set, and with a planted fault where one is asked for."""

from __future__ import annotations

import functools
import time
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from cloudgraft.engine import engine, leadership
from cloudgraft.engine.clock import SystemClock
from cloudgraft.store import lease, sql
from tests.serve import child

__all__ = ["FAULTS", "run"]


def _forget_own_clock() -> None:
    """A leader goes on answering until the database tells it that it no longer leads."""

    def is_leader(self: leadership.Leadership) -> bool:
        return self._deadline > 0

    leadership.Leadership.is_leader = is_leader  # type: ignore[method-assign]


def _forget_lease() -> None:
    """A leader does not look at the lease once it has it: neither when it renews nor when it writes."""

    async def renew(_: lease.Lease) -> bool:
        return True

    def fence(*_: object) -> None:
        pass

    lease.Lease.renew = renew  # type: ignore[method-assign,assignment]
    sql.fence = fence  # type: ignore[attr-defined,assignment]


FAULTS = {"no own clock": [_forget_own_clock], "no fencing": [_forget_own_clock, _forget_lease]}


def run(log: Connection, arguments: list[str], offset: Synchronized[float], fault: str) -> None:
    """`cloudgraft ARGUMENTS`, on a wall clock that is ``offset`` seconds ahead."""
    real = time.time

    def shifted() -> float:
        return real() + float(offset.value)

    time.time = shifted
    engine.SystemClock = functools.partial(SystemClock, shifted)  # type: ignore[assignment,attr-defined]
    for plant in FAULTS.get(fault, []):
        plant()
    child.run(log, arguments)
