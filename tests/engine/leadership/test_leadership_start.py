"""Taking over: what happens between the lease and the first answer, and what start() tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cloudgraft.sdk.errors import InternalError, PreconditionError
from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, away, pass_time, pump
from tests.engine.leadership.replica import LATE, TTL, USABLE, Replica


async def test_the_lease_is_renewed_while_the_journal_is_read(a: Replica, lease: TableLease, timer: HandTimer) -> None:
    done = asyncio.Event()
    a.election = lambda: done
    starting = asyncio.create_task(a.leadership.start())
    await pass_time(timer, 5 * TTL)
    assert a
    assert not starting.done()
    assert a.leadership.trouble() == "elected leader, and still reading the journal"
    assert lease.log.count("renew") >= 14
    done.set()
    await starting
    assert a.leadership.trouble() == ""


async def test_reading_the_journal_is_cancelled_when_leadership_ends_meanwhile(
    a: Replica, lease: TableLease, timer: HandTimer
) -> None:
    a.election = asyncio.Event
    starting = asyncio.create_task(a.leadership.start())
    await pump()
    lease.error = away()
    await pass_time(timer, USABLE)
    assert a.told == ["elected 1", "cancelled", LATE]
    await starting  # a follower for now


async def test_who_cannot_take_over_lets_another_try(a: Replica, b: Replica, timer: HandTimer) -> None:
    a.election = _raise(away())
    await a.leadership.start()
    assert a.told == ["elected 1", "fenced: taking over failed: the database is away"]
    await b.leadership.start()
    assert b.told == ["elected 2"]


async def test_who_cannot_take_over_tries_again_later(a: Replica, b: Replica, timer: HandTimer) -> None:
    await a.leadership.start()
    await b.leadership.start()
    b.election = _raise(away())
    await a.leadership.stop()
    await pass_time(timer, 1.5)
    assert b.told[:2] == ["elected 2", "fenced: taking over failed: the database is away"]
    assert b.leadership.trouble().endswith("the database is away")
    b.election = lambda: None
    await pass_time(timer, 1.5)
    assert b.told[-1] == "elected 3"
    assert b.leadership.trouble() == ""


async def test_start_raises_what_no_other_attempt_will_mend(a: Replica, lease: TableLease, table: LeaseTable) -> None:
    a.election = _raise(PreconditionError("the journal is of a newer version"))
    with pytest.raises(PreconditionError, match="newer version"):
        await a.leadership.start()
    assert a.told == ["elected 1", "fenced: taking over failed: the journal is of a newer version"]
    assert lease.log == ["acquire", "release"]
    assert not table.is_taken()


async def test_start_returns_when_another_attempt_may_help(a: Replica, timer: HandTimer) -> None:
    a.election = _raise(away())
    await a.leadership.start()
    assert not a
    assert a.leadership.trouble() == "not the leader any more: taking over failed: the database is away"
    a.election = lambda: None
    await pass_time(timer, 1.5)
    assert a


async def test_start_returns_when_the_lease_cannot_be_asked_for(a: Replica, lease: TableLease) -> None:
    lease.error = away()
    await a.leadership.start()
    assert a.leadership.trouble() == "not the leader: the lease cannot be asked for: the database is away"


async def test_start_returns_when_the_question_hangs(a: Replica, lease: TableLease, timer: HandTimer) -> None:
    lease.before = asyncio.Event()
    starting = asyncio.create_task(a.leadership.start())
    await pass_time(timer, TTL / 3)
    await starting
    assert a.leadership.trouble() == "not the leader: the lease cannot be asked for: no answer within 3.33 s"


async def test_a_takeover_that_gives_itself_up_is_a_failure(a: Replica) -> None:
    a.election = _raise(asyncio.CancelledError())
    with pytest.raises(InternalError, match="cancelled"):
        await a.leadership.start()


def _raise(error: BaseException) -> Callable[[], object]:
    def election() -> object:
        raise error

    return election
