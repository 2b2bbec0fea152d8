"""One leads, renews its lease and stays the leader; the others wait."""

from __future__ import annotations

import asyncio
import logging
import math
from functools import partial

import pytest

from cloudgraft.engine.leadership import HeldCalls, Leadership, SoleLease
from cloudgraft.sdk.errors import InvalidArgumentError
from tests.conditions import until
from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, pass_time, pump
from tests.engine.leadership.replica import TTL, Replica


async def test_the_first_leads_when_start_returns(a: Replica) -> None:
    assert not a
    assert a.leadership.trouble() == "not the leader: it has not been tried yet"
    await a.leadership.start()
    assert a
    assert (a.leadership.epoch, a.leadership.trouble(), a.told) == (1, "", ["elected 1"])


async def test_the_second_says_who_leads(a: Replica, b: Replica) -> None:
    await a.leadership.start()
    await b.leadership.start()
    assert not b
    assert (b.leadership.epoch, b.leadership.trouble(), b.told) == (None, "not the leader: a leads", [])


async def test_when_the_log_says_who_leads_the_readiness_page_says_it_too(
    a: Replica, b: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    """Another thread answers for that page: who has read the log gets no older answer there."""
    caplog.set_level(logging.INFO)

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            at_that_moment.append((record.getMessage(), b.leadership.trouble()))

    await a.leadership.start()
    at_that_moment: list[tuple[str, str]] = []
    log, seen = logging.getLogger("cloudgraft.engine"), Log()
    log.addHandler(seen)
    try:
        await b.leadership.start()
    finally:
        log.removeHandler(seen)
    assert at_that_moment == [("not the leader: a leads", "not the leader: a leads")]


async def test_a_leader_stays_it_for_as_long_as_it_can_renew(a: Replica, b: Replica, timer: HandTimer) -> None:
    await a.leadership.start()
    await b.leadership.start()
    for _ in range(100):
        await pass_time(timer, TTL / 4)
        assert a
        assert not b
    assert a.told == ["elected 1"]


async def test_it_renews_every_third_of_the_lease(a: Replica, lease: TableLease, timer: HandTimer) -> None:
    await a.leadership.start()
    await pass_time(timer, 10 * TTL + 0.1)
    assert lease.log == ["acquire", *["renew"] * 30]


async def test_a_follower_cannot_be_fenced(a: Replica, b: Replica) -> None:
    await a.leadership.start()
    await b.leadership.start()
    b.leadership.fence("whatever")
    await pump()
    assert (b.told, b.leadership.trouble()) == ([], "not the leader: a leads")


async def test_followers_do_not_ask_in_step(a: Replica, table: LeaseTable, timer: HandTimer) -> None:
    await a.leadership.start()
    for chance, pause in ((0.0, 0.75), (0.5, 1.0), (1.0, 1.25)):
        lease = TableLease(table, "c", timer)
        follower = Leadership(
            lease, on_elected=a._elected, on_fenced=a._fenced, timer=timer, jitter=partial(float, chance)
        )
        await follower.start()
        await pass_time(timer, pause * 0.99)
        assert lease.log == ["acquire"]
        await pass_time(timer, pause * 0.02)
        assert lease.log == ["acquire", "acquire"]
        await follower.stop()


async def test_a_replica_that_is_next_asks_often_until_it_leads(
    a: Replica, table: LeaseTable, timer: HandTimer
) -> None:
    await a.leadership.start()
    lease = TableLease(table, "b", timer)
    b, reading = Replica(lease, timer), asyncio.Event()
    b.election = lambda: reading
    await b.leadership.start()
    assert not b.leadership.is_next()
    lease.is_in_line = True
    await a.leadership.stop()
    await pass_time(timer, 1.0)
    assert (bool(b), b.leadership.is_next()) == (True, True)  # it still reads the journal
    reading.set()
    await pump()
    assert (b.leadership.trouble(), b.leadership.is_next()) == ("", False)
    await b.leadership.stop()


async def test_calls_are_waiting_for_whoever_is_next(a: Replica, table: LeaseTable, timer: HandTimer) -> None:
    await a.leadership.start()
    lease = TableLease(table, "b", timer)
    lease.is_in_line = True
    b = Replica(lease, timer)
    await b.leadership.start()
    await pass_time(timer, 1.0)
    assert lease.log.count("acquire") > 4  # others ask once a second
    await b.leadership.stop()


async def test_whoever_failed_to_take_over_is_not_next_any_more(table: LeaseTable, timer: HandTimer) -> None:
    """Else it would count as ready, while every call to it waits in vain."""
    lease = TableLease(table, "b", timer)
    lease.is_in_line = True
    b = Replica(lease, timer)

    def fail() -> None:
        raise RuntimeError("broken")

    b.election = fail
    await b.leadership.start(is_patient=True)
    await pass_time(timer, 1.0)
    assert (b.leadership.is_next(), bool(b)) == (False, False)
    assert "broken" in b.leadership.trouble()
    await b.leadership.stop()


class Succession:
    """Of a replica that can be made to lead, or not to be next."""

    def __init__(self) -> None:
        self.next, self.leads = True, False

    def is_next(self) -> bool:
        return self.next

    def is_leader(self) -> bool:
        return self.leads


async def test_a_short_call_ends_no_other_that_waits_beside_it() -> None:
    replica = Succession()
    calls = HeldCalls(replica)
    long = asyncio.create_task(calls.wait(100.0))
    assert await calls.wait(0.01) is False  # the connections stay: the long one still waits
    assert await calls.wait(-0.5) is False  # no time left: it did not wait
    replica.next, replica.leads = False, True
    assert await long is False


async def test_calls_that_waited_in_vain_end_their_connections_once() -> None:
    calls = HeldCalls(Succession())
    assert sorted(await asyncio.gather(*(calls.wait(0.01) for _ in range(5)))) == [False] * 4 + [True]


async def test_calls_look_elsewhere_once_another_replica_leads() -> None:
    replica = Succession()
    waiting = asyncio.create_task(HeldCalls(replica).wait(100.0))
    await asyncio.sleep(0)
    replica.next = False
    assert await waiting is True


async def test_without_replicas_it_leads_from_start_to_stop(timer: HandTimer) -> None:
    sole = Replica(SoleLease(), timer)
    await sole.leadership.start()
    for _ in range(3):
        timer.advance(1e9)
        await pump()
        assert sole
        assert sole.leadership.trouble() == ""
    await sole.leadership.stop()
    assert not sole
    assert sole.told == ["elected 1", "fenced: stopping"]


@pytest.mark.parametrize("ttl", [0.0, -1.0, math.nan])
def test_a_lease_of_no_length_is_refused(timer: HandTimer, ttl: float) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be held"):
        Replica(TableLease(LeaseTable(ttl), "a", timer), timer)


async def test_the_systems_own_timer_does_what_the_tests_timer_does(table: LeaseTable) -> None:
    elected, fenced = asyncio.Event(), asyncio.Event()

    async def on_elected(epoch: int) -> None:
        elected.set()

    async def on_fenced(reason: str) -> None:
        fenced.set()

    table.ttl = 0.5
    lease = TableLease(table, "a", HandTimer())
    leadership = Leadership(lease, on_elected=on_elected, on_fenced=on_fenced)
    await leadership.start()
    assert elected.is_set()
    await until(lambda: "renew" in lease.log)
    lease.before = asyncio.Event()
    await until(fenced.is_set)
    assert not leadership.is_leader()
    await leadership.stop()
