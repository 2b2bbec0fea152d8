"""After a reign: what must end first, and what a stop leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from cloudgraft.engine.leadership import Leadership
from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, away, pass_time, pump
from tests.engine.leadership.replica import TTL, Replica


async def test_a_clean_stop_ends_the_work_first_and_then_lets_the_next_lead_at_once(
    a: Replica, b: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    await b.leadership.start()
    a.aftermath = asyncio.Event()
    stopping = asyncio.create_task(a.leadership.stop())
    await pass_time(timer, 1.5)
    assert a.told == ["elected 1", "fenced: stopping"]
    assert "release" not in lease.log
    assert not b
    a.aftermath.set()
    await stopping
    await pass_time(timer, 1.5)
    assert b.told == ["elected 2"]
    assert a.leadership.trouble() == "not the leader any more: stopping"


async def test_nothing_is_tried_before_the_end_of_the_last_reign_is_through(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    a.aftermath = asyncio.Event()
    a.leadership.fence("a reason")
    await pass_time(timer, 5 * TTL)
    assert lease.log.count("acquire") == 1
    a.aftermath.set()
    await pass_time(timer, 1.5)
    assert a.told == ["elected 1", "fenced: a reason", "elected 2"]


async def test_an_error_after_the_end_is_logged_and_does_not_end_the_rest(
    timer: HandTimer, lease: TableLease, caplog: pytest.LogCaptureFixture
) -> None:
    epochs: list[int] = []

    async def elected(epoch: int) -> None:
        epochs.append(epoch)

    async def fenced(reason: str) -> None:
        raise RuntimeError("bug")

    leadership = Leadership(lease, on_elected=elected, on_fenced=fenced, timer=timer)
    await leadership.start()
    leadership.fence("a reason")
    await pass_time(timer, 1.5)
    assert epochs == [1, 2]
    assert "the clean-up after the end of leadership failed" in caplog.text
    await leadership.stop()


async def test_a_stop_while_the_lease_is_asked_for_gives_it_back(
    a: Replica, lease: TableLease, table: LeaseTable
) -> None:
    lease.after = asyncio.Event()
    starting = asyncio.create_task(a.leadership.start())
    await pump()
    assert table.is_taken()  # it is ours, only we do not know it yet
    stopping = asyncio.create_task(a.leadership.stop())
    await pump()
    lease.after.set()
    await stopping
    await starting
    assert not table.is_taken()
    assert a.told == []


async def test_a_start_that_is_cancelled_leaves_nothing_behind(a: Replica, table: LeaseTable) -> None:
    a.election = asyncio.Event
    starting = asyncio.create_task(a.leadership.start())
    await pump()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert a.told == ["elected 1", "cancelled", "fenced: stopping"]
    assert not table.is_taken()


async def test_a_follower_stops_without_a_word_to_the_database(a: Replica, table: LeaseTable, timer: HandTimer) -> None:
    await a.leadership.start()
    lease = TableLease(table, "c", timer)
    follower = Replica(lease, timer)
    await follower.leadership.start()
    await follower.leadership.stop()
    await follower.leadership.stop()  # twice is fine
    assert lease.log == ["acquire"]
    assert follower.told == []


async def test_a_database_that_is_away_does_not_keep_it_from_stopping(a: Replica, lease: TableLease) -> None:
    await a.leadership.start()
    lease.error = away()
    await a.leadership.stop()
    assert a.told == ["elected 1", "fenced: stopping"]
    await Leadership(lease, on_elected=a._elected, on_fenced=a._fenced).stop()  # nor does one never started
