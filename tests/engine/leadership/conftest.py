"""One lease that two replicas want, on a timer that is moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease
from tests.engine.leadership.replica import TTL, Replica


@pytest.fixture
def timer() -> HandTimer:
    return HandTimer()


@pytest.fixture
def table() -> LeaseTable:
    return LeaseTable(TTL)


@pytest.fixture
def lease(table: LeaseTable, timer: HandTimer) -> TableLease:
    return TableLease(table, "a", timer)


@pytest.fixture
async def a(lease: TableLease, timer: HandTimer) -> AsyncIterator[Replica]:
    replica = Replica(lease, timer)
    yield replica
    lease.error = lease.before = lease.after = replica.aftermath = None
    await replica.leadership.stop()


@pytest.fixture
async def b(table: LeaseTable, timer: HandTimer) -> AsyncIterator[Replica]:
    replica = Replica(TableLease(table, "b", timer), timer)
    yield replica
    await replica.leadership.stop()
