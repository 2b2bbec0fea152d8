"""Runs `cloudgraft serve` with a clock that a test can set, and with a planted fault where one is asked for."""

from __future__ import annotations

import math
import time
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from cloudgraft.engine import engine, leadership
from cloudgraft.engine.clock import SystemClock
from cloudgraft.store import sql
from cloudgraft.store.lease import election as lease
from tests.serve import child


def _forget_own_clock() -> None:
    """A leader goes on answering until the database tells it that it no longer leads."""
    leadership._Times.usable = math.inf  # type: ignore[assignment]


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

    class ShiftedClock(SystemClock):
        def __init__(self) -> None:
            super().__init__(shifted)

    time.time = shifted
    engine.SystemClock = ShiftedClock  # type: ignore[assignment,attr-defined]
    for plant in FAULTS.get(fault, []):
        plant()
    child.run(log, arguments)
