"""Commands that change a whole journal: they make sure that no replica leads, and that none goes on leading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cloudgraft.store.databases.database import Mode
from cloudgraft.store.journal import FencedError, JournalLockedError
from cloudgraft.store.lease.no_leader import dismiss_leader, wait_until_no_leader
from cloudgraft.store.records import Change
from tests.store.places import PostgresPlace


async def test_a_leader_that_crashed_is_waited_for_and_a_frozen_one_is_fenced(
    postgres_place: PostgresPlace, ages: Callable[[float], None]
) -> None:
    lease = postgres_place.lease()
    journal = postgres_place.journal(lease=lease)
    await journal.open()
    await lease.acquire()
    await journal.load()
    ages(1)
    assert lease.seconds_left() == 14.0
    database = postgres_place.database()
    row = await asyncio.to_thread(wait_until_no_leader, database)
    assert lease.seconds_left() == 0.0
    with database.transaction(Mode.WRITE) as connection:
        dismiss_leader(connection, row)
    with pytest.raises(FencedError):
        await journal.write(Change())
    assert await postgres_place.lease().acquire() == 2
    with pytest.raises(JournalLockedError, match="in use by process"), database.transaction(Mode.WRITE) as connection:
        dismiss_leader(connection, row)  # it is another row by now
    database.close()
