"""At no time do two lead, whatever happens to two replicas, their clocks and the database."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.hand_timer import HandTimer, LeaseTable, TableLease, away, pass_time, pump
from tests.engine.leadership.replica import TTL, Replica

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
