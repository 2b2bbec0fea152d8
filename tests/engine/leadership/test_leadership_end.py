"""A reign ends before another can begin, whatever ended it."""

from __future__ import annotations

import asyncio

import pytest

from cloudgraft.store.journal import FencedError
from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, away, pass_time, pump
from tests.engine.leadership.replica import LATE, LOST, TTL, USABLE, Replica


async def test_without_a_clean_stop_the_next_leads_when_the_lease_has_ended(
    a: Replica, b: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    await b.leadership.start()
    lease.before = asyncio.Event()  # a is cut off from the database for good
    await pass_time(timer, USABLE)
    assert not a
    assert not b
    await pass_time(timer, TTL - USABLE + 1.5)
    assert b.told == ["elected 2"]


async def test_a_leader_that_cannot_renew_tries_again_and_fences_itself_before_the_lease_ends(
    a: Replica, lease: TableLease, table: LeaseTable, timer: HandTimer, caplog: pytest.LogCaptureFixture
) -> None:
    await a.leadership.start()
    lease.error = away()
    await pass_time(timer, USABLE - 0.01)
    assert a
    assert a.leadership.trouble() == ""
    assert lease.log.count("renew") >= 4
    await pass_time(timer, 0.01)
    assert not a
    assert table.is_taken()
    assert a.told == ["elected 1", LATE]
    await pass_time(timer, 1.5)
    assert a.leadership.trouble() == "not the leader: the lease cannot be asked for: the database is away"
    assert sum("cannot be asked for" in record.getMessage() for record in caplog.records) == 1


async def test_a_database_that_comes_back_in_time_changes_nothing(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    lease.error = away()
    await pass_time(timer, USABLE - 1)
    lease.error = None
    await pass_time(timer, 3 * TTL)
    assert a
    assert a.told == ["elected 1"]


async def test_a_database_that_comes_back_too_late_makes_it_lead_again_in_a_new_epoch(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    lease.error = away()
    await pass_time(timer, USABLE + 5)
    lease.error = None
    await pass_time(timer, 1.5)
    assert a.told == ["elected 1", LATE, "elected 2"]
    assert (a.leadership.epoch, a.leadership.trouble()) == (2, "")


async def test_a_bug_in_the_lease_is_an_error_like_any_other(a: Replica, lease: TableLease, timer: HandTimer) -> None:
    await a.leadership.start()
    lease.error = RuntimeError("bug")
    await pass_time(timer, USABLE + 2)
    assert not a
    lease.error = None
    await pass_time(timer, 1.5)
    assert a


async def test_an_answer_that_hangs_does_not_delay_the_end(a: Replica, lease: TableLease, timer: HandTimer) -> None:
    await a.leadership.start()
    lease.after = asyncio.Event()  # the database renews each time, but the answer does not arrive
    await pass_time(timer, USABLE)
    assert not a
    assert a.told[-1] == LATE


async def test_time_counts_from_before_the_question_and_not_from_the_answer(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    lease.after = asyncio.Event()
    starting = asyncio.create_task(a.leadership.start())
    await pass_time(timer, 3.0)  # so long is the answer on its way
    lease.after.set()
    await starting
    assert a
    lease.before = asyncio.Event()
    await pass_time(timer, USABLE - 3.0)
    assert not a


async def test_a_lease_whose_answer_comes_when_it_is_nearly_over_is_not_used(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    lease.after = asyncio.Event()
    starting = asyncio.create_task(a.leadership.start())
    await pump()
    timer.advance(USABLE)  # the process was stopped: the time limit and the answer come at once
    lease.after.set()
    await starting
    assert not a
    assert a.told == []


async def test_a_lease_that_another_has_taken_ends_it_at_once(a: Replica, table: LeaseTable, timer: HandTimer) -> None:
    await a.leadership.start()
    table.holder, table.epoch = "b", 2
    await pass_time(timer, TTL / 3)
    assert not a
    assert a.told == ["elected 1", LOST]
    assert a.leadership.trouble() == "not the leader any more: the lease is lost, and another process may lead"
    await pass_time(timer, 1.5)
    assert a.leadership.trouble() == "not the leader: b leads"


async def test_a_lease_that_refuses_to_be_written_ends_it_at_once(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    lease.error = FencedError("somebody else leads")
    await pass_time(timer, TTL / 3)
    assert a.told == ["elected 1", LOST]
    await a.leadership.stop()
    assert "release" not in lease.log  # there is nothing to let go


async def test_a_process_that_was_stopped_is_fenced_at_the_very_first_check(
    a: Replica, b: Replica, timer: HandTimer, lease: TableLease
) -> None:
    """SIGSTOP, a suspended machine, a loop that hung: nothing of ours has run meanwhile, and nothing runs first."""
    await a.leadership.start()
    await b.leadership.start()
    await pump()
    before = list(lease.log)
    timer.advance(20 * TTL)
    assert not a  # no await between waking up and this
    assert a.leadership.epoch is None
    assert a.leadership.trouble() == "not the leader any more: the lease ended before it could be renewed"
    await pump()
    assert a.told == ["elected 1", LATE]
    assert lease.log == before  # it does not try to renew what has ended
    assert b  # which saw the same row all the time


async def test_a_renewal_under_way_when_the_process_was_stopped_does_not_bring_leadership_back(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    lease.after = asyncio.Event()
    await pass_time(timer, TTL / 3)
    assert lease.log[-1] == "renew"
    lease.after.set()  # the answer has arrived, but the process is stopped before it can read it
    timer.advance(TTL)
    assert not a
    await pump()
    assert a.told == ["elected 1", LATE]


async def test_a_write_that_the_journal_refuses_fences_at_once(a: Replica, timer: HandTimer) -> None:
    await a.leadership.start()
    a.leadership.fence("the journal refused a write")
    assert not a
    assert a.leadership.trouble() == "not the leader any more: the journal refused a write"
    a.leadership.fence("another one")  # the first reason is the reason
    await pump()
    assert a.told == ["elected 1", "fenced: the journal refused a write"]
    await pass_time(timer, 1.5)
    assert a.told[-1] == "elected 2"


async def test_a_leader_whose_clock_is_off_lets_another_lead(
    a: Replica, b: Replica, lease: TableLease, timer: HandTimer
) -> None:
    await a.leadership.start()
    await b.leadership.start()
    a.aftermath = asyncio.Event()
    lease.clock.measure(0.0, 0.0, database=600.0)
    await pass_time(timer, TTL / 3 + 0.1)
    assert a.told[-1].startswith("fenced: another replica should lead: this host's clock is 600 s behind")
    assert "600 s behind" in a.leadership.trouble()
    assert "release" not in lease.log  # its work is not over yet
    a.aftermath.set()
    await pass_time(timer, 1.5)
    assert b.told == ["elected 2"]


async def test_a_leader_whose_clock_is_off_stays_if_no_other_wanted_to_lead(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    lease.clock.measure(0.0, 0.0, database=600.0)
    lease.clock.allow()
    await a.leadership.start()
    await pass_time(timer, 3 * TTL)
    assert a.told == ["elected 1"]
