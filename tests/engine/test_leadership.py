"""One leader at a time, and one that no longer leads knows it before it does harm."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.engine.leadership import Leadership, LeaseLike, SoleLease
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, PreconditionError
from cloudgraft.store.journal import FencedError
from tests.conditions import until
from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, away, pass_time, pump

TTL = 10.0
USABLE = 8.0  # the lease without its margin
LOST = "fenced: the lease is lost, and another process may lead"
LATE = "fenced: the lease ended before it could be renewed"


class Replica:
    """A process that wants to lead, and what it was told."""

    def __init__(self, lease: LeaseLike, timer: HandTimer) -> None:
        self.told: list[str] = []
        self.election: Callable[[], object] = lambda: None  # what on_elected does: returns, raises, or gives an Event
        self.aftermath: asyncio.Event | None = None  # what on_fenced waits for
        self.leadership = Leadership(
            lease, on_elected=self._elected, on_fenced=self._fenced, timer=timer, jitter=lambda: 0.5
        )

    async def _elected(self, epoch: int) -> None:
        assert self.leadership.is_leader()
        self.told.append(f"elected {epoch}")
        wait = self.election()
        if isinstance(wait, asyncio.Event):
            try:
                await wait.wait()
            except asyncio.CancelledError:
                self.told.append("cancelled")
                raise

    async def _fenced(self, reason: str) -> None:
        assert not self.leadership.is_leader()
        self.told.append(f"fenced: {reason}")
        if self.aftermath is not None:
            await self.aftermath.wait()

    def __bool__(self) -> bool:
        return self.leadership.is_leader()


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


async def test_a_follower_cannot_be_fenced(a: Replica, b: Replica) -> None:
    await a.leadership.start()
    await b.leadership.start()
    b.leadership.fence("whatever")
    await pump()
    assert (b.told, b.leadership.trouble()) == ([], "not the leader: a leads")


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
    with pytest.raises(InternalError, match="given up"):
        await a.leadership.start()


def _raise(error: BaseException) -> Callable[[], object]:
    def election() -> object:
        raise error

    return election


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
    assert "what follows the end of leadership failed" in caplog.text
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


# What may happen to one of two replicas, to the database, or to time.
STEP = st.one_of(
    st.tuples(st.sampled_from(["pass", "stopped"]), st.floats(0.01, 15.0)),
    st.tuples(st.sampled_from(["away", "lost answers", "slow", "well", "fence", "restart"]), st.sampled_from([0, 1])),
    st.tuples(st.sampled_from(["standby", "failover"]), st.just(0)),
)
RATE = st.floats(0.95, 1.05)  # of a clock


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=25), RATE, RATE)
def test_at_no_time_do_two_lead_whatever_happens(steps: list[tuple[str, float]], one: float, other: float) -> None:
    asyncio.run(World(one, other).live_through(steps))


class World:
    """Two replicas with clocks that run at different rates, and a database that may lose its last commits."""

    def __init__(self, *rates: float) -> None:
        self.timers = [HandTimer(rate) for rate in rates]
        self.table = LeaseTable(TTL)
        self.leases = [TableLease(self.table, name, timer) for name, timer in zip("ab", self.timers, strict=True)]
        self.replicas = [Replica(lease, timer) for lease, timer in zip(self.leases, self.timers, strict=True)]
        self.has_lost_commits = False

    async def live_through(self, steps: list[tuple[str, float]]) -> None:
        for replica in self.replicas:
            await replica.leadership.start()
        self.standby = replace(self.table)  # which has what was committed up to some moment
        for what, detail in steps:
            if what == "pass":
                await pass_time(self.timers[0], detail, self.timers[1])
            elif what == "stopped":
                for timer in self.timers:
                    timer.advance(detail)
            elif what == "standby":
                self.standby = replace(self.table)
            elif what == "failover":
                self._fail_over()
            else:
                await self._happen(what, int(detail))
            self._check()
            await pump()
        for lease, replica in zip(self.leases, self.replicas, strict=True):
            _heal(lease)
            await replica.leadership.stop()
            _check_story(replica.told, epochs_grow=not self.has_lost_commits)

    def _check(self) -> None:
        leaders = [replica for replica in self.replicas if replica]
        assert len(leaders) <= 1
        # Who takes itself for the leader could write: the database takes its epoch for the present one, and valid.
        if not self.has_lost_commits:
            assert all(leader.leadership.epoch == self.table.epoch and self.table.is_taken() for leader in leaders)

    def _fail_over(self) -> None:
        self.has_lost_commits = True
        table, standby = self.table, self.standby
        table.holder, table.epoch, table.renewals = standby.holder, standby.epoch, standby.renewals
        table.taken_on, table.server = standby.taken_on, table.server + "'"

    async def _happen(self, what: str, who: int) -> None:
        lease, replica = self.leases[who], self.replicas[who]
        _heal(lease)
        if what == "away":
            lease.error = away()
        elif what == "lost answers":
            lease.after = asyncio.Event()
        elif what == "slow":
            lease.before = asyncio.Event()
        elif what == "fence":
            replica.leadership.fence("a refused write")
        elif what == "restart":
            await replica.leadership.stop()
            _check_story(replica.told, epochs_grow=not self.has_lost_commits)
            self.leases[who] = TableLease(self.table, "ab"[who], self.timers[who])
            self.replicas[who] = Replica(self.leases[who], self.timers[who])
            await self.replicas[who].leadership.start()


def _heal(lease: TableLease) -> None:
    lease.error = None
    for gate in (lease.before, lease.after):
        if gate is not None:
            gate.set()
    lease.before = lease.after = None


def _check_story(told: list[str], *, epochs_grow: bool) -> None:
    """Each reign that began has ended, and the epochs only grow, unless the database lost some."""
    assert [line.partition(" ")[0] for line in told] == ["elected", "fenced:"] * (len(told) // 2)
    epochs = [int(line.partition(" ")[2]) for line in told[::2]]
    assert epochs == sorted(set(epochs)) or not epochs_grow
