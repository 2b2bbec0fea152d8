"""Leaders as processes, and a lease in a real PostgreSQL: stopped, killed, cut off, and who leads then."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import pytest

from cloudgraft.engine.clock import SystemTimer
from cloudgraft.engine.leadership import Leadership
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.engine.hand_timer import HandTimer
from tests.engine.leader_process import leader_process
from tests.postgres import PostgresServer, shift_database_clock

SHORT = 1.0  # seconds; of a lease that is to end while the test waits
LONG = 600.0  # of one that is not
CLOCK = SystemTimer()
T = TypeVar("T")


class Hands(HandTimer):
    """Time of replicas that passes while they wait for a condition, and not while PostgreSQL is at work for them."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = 0  # questions to PostgreSQL

    async def pass_until(self, condition: Callable[[], bool], *, what: str = "") -> None:
        def holds() -> bool:
            if not (is_so := condition()) and not self.under_way:
                self.advance(0.1)
            return is_so

        await until(holds, what=what)


class TimedLease(Lease):
    """Takes no time, however busy the machine is."""

    hands: Hands

    async def _run(self, call: Callable[[], T]) -> T:
        self.hands.under_way += 1
        try:
            return await super()._run(call)
        finally:
            self.hands.under_way -= 1


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr("cloudgraft.store.lease.election._now", hands.now)
    monkeypatch.setattr(TimedLease, "hands", hands, raising=False)
    return hands


@pytest.fixture
async def url(postgres: PostgresServer) -> str:
    """A database whose tables are there."""
    database = postgres.database()
    journal = SqlJournal.postgresql(database)
    await journal.open()
    await journal.close()
    return database


@asynccontextmanager
async def replica(
    url: str, name: str, seconds: float, told: list[str], hands: Hands | None = None, *, rollout: str = ""
) -> AsyncIterator[Leadership]:
    async def elected(epoch: int) -> None:
        told.append(f"elected {epoch}")

    async def fenced(reason: str) -> None:
        told.append(f"fenced: {reason}")

    kind = Lease if hands is None else TimedLease
    lease = kind(url, seconds=seconds, holder=name, max_clock_offset=60.0, rollout=rollout)
    leadership = Leadership(lease, on_elected=elected, on_fenced=fenced, timer=hands)
    await leadership.start()
    try:
        yield leadership
    finally:
        await leadership.stop()
        await lease.close()


async def test_a_leader_stopped_with_sigstop_calls_no_cloud_when_it_is_woken() -> None:
    """Not even when nobody else has taken the lease."""
    async with leader_process(SHORT) as leader:
        await leader.says("call")
        leader.send(signal.SIGSTOP)
        stopped = CLOCK.now()
        await until(lambda: CLOCK.now() > stopped + SHORT)
        woken = CLOCK.now()
        leader.send(signal.SIGCONT)
        said = await leader.says("elected", after=woken)
    # Seen by itself or told first, but nothing is called before it leads again, in a new epoch.
    old = {line.about for line in said if line.word == "call" and line.at <= woken}
    new = {line.about for line in said if line.word == "call" and line.at > woken}
    assert new <= {said[-1].about}
    assert not new & old


async def test_a_leader_that_was_stopped_finds_the_other_one_leading(url: str) -> None:
    told: list[str] = []
    async with leader_process(SHORT, url) as old:
        await old.says("call")
        old.send(signal.SIGSTOP)
        async with replica(url, "the parent", LONG, told) as new:
            await until(new.is_leader)
            woken = CLOCK.now()
            old.send(signal.SIGCONT)
            said = await old.says("refrain", after=woken)
            assert not [line for line in said if line.word == "call" and line.at > woken]
            assert {await old.word() for _ in range(100)} <= {"fenced", "refrain"}
            assert new.is_leader()
            handing_over = CLOCK.now()
        said = await old.says("call")  # it leads again when the other one has stopped, and not before
        assert said[-1].at > handing_over


async def test_after_kill_minus_nine_the_next_leads_when_the_lease_has_ended(url: str) -> None:
    told: list[str] = []
    async with leader_process(SHORT, url) as old:
        await old.says("call")
        old.send(signal.SIGKILL)
        async with replica(url, "the parent", LONG, told) as new:
            await until(lambda: new.is_leader() and not new.trouble())
            assert new.epoch is not None
            assert new.epoch >= 2
            assert told == [f"elected {new.epoch}"]


async def test_the_first_of_a_new_rollout_takes_over_from_a_leader_of_the_old_one(url: str) -> None:
    async with (
        replica(url, "old", LONG, []) as old,
        replica(url, "first", LONG, [], rollout="new") as first,
        replica(url, "second", LONG, [], rollout="new") as second,
    ):
        assert (old.is_next(), first.is_next(), second.is_next()) == (False, True, False)
        await old.stop()
        await until(lambda: first.is_leader() and not first.trouble())
        assert not second.is_leader()
        await until(lambda: "first, rollout new" in second.trouble())
        assert (first.is_next(), second.is_next()) == (False, False)
        async with replica(url, "third", LONG, [], rollout="newer") as third:
            assert third.is_next()


async def test_the_place_in_line_becomes_free_with_its_replica(url: str) -> None:
    async with replica(url, "old", LONG, []), replica(url, "waiting", LONG, []) as waiting:
        async with replica(url, "first", LONG, [], rollout="new") as first:
            async with replica(url, "second", LONG, [], rollout="new") as second:
                assert (first.is_next(), second.is_next()) == (True, False)
            assert first.is_next()
        async with replica(url, "second", LONG, [], rollout="new") as second:
            assert (second.is_next(), waiting.is_next()) == (True, False)


async def test_a_clean_stop_hands_over_long_before_the_lease_ends(url: str) -> None:
    told: list[str] = []
    async with replica(url, "first", LONG, []) as first:
        assert first.is_leader()
        async with replica(url, "second", LONG, told) as second:
            assert re.fullmatch(r"not the leader: first \([0-9a-f]{8}\) leads", second.trouble())
            await first.stop()
            await until(second.is_leader)
    assert told == ["elected 2", "fenced: stopping"]


async def test_a_replica_whose_clock_is_off_steps_back_for_another(
    postgres: PostgresServer, url: str, hands: Hands
) -> None:
    postgres.execute("DROP ROLE IF EXISTS skewed")
    postgres.execute("CREATE ROLE skewed SUPERUSER LOGIN")  # whose sessions see another time
    shift_database_clock(url, 0, role="skewed")
    skewed = url.replace("postgres@", "skewed@")
    one: list[str] = []
    other: list[str] = []
    async with replica(skewed, "a", 15.0, one, hands) as first, replica(url, "b", 15.0, other, hands) as second:
        assert first.is_leader()
        shift_database_clock(url, -600, role="skewed")
        await hands.pass_until(second.is_leader)
        assert "another replica should lead: this host's clock is 600 s ahead of the database's" in one[-1]
        assert first.clock.offset == pytest.approx(-600, abs=5)
        assert second.clock.trouble() == ""
        await second.stop()
        await hands.pass_until(first.is_leader, what="it leads if nobody else does")
        assert first.clock.trouble()
    postgres.execute("DROP OWNED BY skewed", database=url.split("/")[3].split("?", maxsplit=1)[0])
    postgres.execute("DROP ROLE skewed")


async def test_a_clock_of_the_database_that_is_wrong_stops_nobody_for_long(url: str, hands: Hands) -> None:
    """Every replica differs from it then: none of them is better than another."""
    shift_database_clock(url, 0)
    told: list[str] = []
    async with replica(url, "a", 15.0, told, hands) as sole:
        shift_database_clock(url, 600)
        await hands.pass_until(lambda: len(told) == 3)
        assert told[1].startswith("fenced: another replica should lead")
        led = hands.now()
        await hands.pass_until(lambda: hands.now() > led + 30.0, what="several renewals")
        assert sole.is_leader()
        assert told[2:] == ["elected 2"]


@pytest.mark.parametrize("trouble", ["frozen", "stopped"])
async def test_a_leader_whose_database_is_away_fences_itself_and_leads_again_later(
    url: str, postgres: PostgresServer, trouble: Literal["frozen", "stopped"]
) -> None:
    told: list[str] = []
    async with replica(url, "a", 3.0, told) as leadership:
        await until(leadership.is_leader)
        with postgres.frozen() if trouble == "frozen" else postgres.stopped():
            await until(lambda: "cannot be asked for" in leadership.trouble())
            assert not leadership.is_leader()
            assert told[-1] == "fenced: the lease ended before it could be renewed"
        await until(lambda: (leadership.epoch or 0) >= 2, what="it leads again, in a new epoch")
