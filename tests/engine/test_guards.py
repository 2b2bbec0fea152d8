"""Law 10: whatever the order of asking, ordering and counting, no guard is ever exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.specs import GuardLimits, Money
from cloudgraft.engine.guards import DAY, HOUR, GuardUsage, Stray, Tally, tally
from cloudgraft.engine.machines.decide import failure
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import NOW, a_record

PRICE = Decimal("0.10")
BOUGHT: dict[str, Any] = {"hourly": PRICE, "currency": "EUR"}


def a_book(overall: GuardLimits | None = None, counted: Tally | None = None, **clouds: GuardLimits) -> GuardUsage:
    return GuardUsage(overall or GuardLimits(), clouds, {"sim": counted or Tally()})


def capped(amount: str) -> GuardLimits:
    return GuardLimits(max_spend_per_day=Money(amount=Decimal(amount), currency="EUR"))


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "machines", "waiting"),
    [
        (a_record(state=State.REQUESTED), 1, 1),
        (a_record(state=State.CREATING, presence=Presence.NONE), 1, 0),  # it will be tried again
        (a_record(state=State.CREATING, presence=Presence.UNKNOWN), 1, 0),
        (a_record(state=State.BOOTING, presence=Presence.PRESENT), 1, 0),
        (a_record(state=State.RUNNING, presence=Presence.PRESENT), 1, 0),
        (a_record(state=State.FAILED, presence=Presence.NONE), 0, 0),  # a placeholder costs nothing
        (a_record(state=State.FAILED, presence=Presence.UNKNOWN), 1, 0),
        (a_record(state=State.FAILED, presence=Presence.PRESENT), 1, 0),
        (a_record(state=State.DELETING, presence=Presence.UNKNOWN), 1, 0),
        (a_record(state=State.DELETING, presence=Presence.PRESENT), 1, 0),
        (a_record(state=State.DELETING, presence=Presence.NONE), 0, 0),
        (a_record(state=State.GONE), 0, 0),
        (a_record(state=State.GONE, presence=Presence.PRESENT), 0, 0),  # an operator said that it is not ours
    ],
    ids=lambda value: f"{value.state.value}-{value.presence.value}" if isinstance(value, MachineRecord) else str(value),
)
def test_what_is_or_may_be_there_or_was_asked_for_counts(record: MachineRecord, machines: int, waiting: int) -> None:
    counted = tally([record], [], NOW)
    assert (counted.machines, counted.waiting) == (machines, waiting)


def test_spend_follows_the_wall_clock_where_that_is_ahead() -> None:
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT, **BOUGHT)
    behind = NOW - 6 * HOUR  # the engine's clock: its journal was lost while the wall clock was six hours back
    assert tally([running], [], behind, wall=NOW + 5 * HOUR).spend == pytest.approx(0.60)
    stray = Stray(machine_id="m-1", created_at=NOW, hourly=0.1)
    assert tally([], [stray], behind, wall=NOW + 5 * HOUR).spend == pytest.approx(0.60)


def test_a_wall_clock_that_is_set_back_lowers_no_spend() -> None:
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT, **BOUGHT)
    assert tally([running], [], NOW + 5 * HOUR, wall=NOW - DAY).spend == pytest.approx(0.60)


def test_orders_count_for_an_hour_each_try_of_them() -> None:
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT, attempts=3, attempt_at=NOW)
    assert tally([record], [], NOW + HOUR - 1).orders == 3
    assert tally([record], [], NOW + HOUR).orders == 0
    gone = replace(record, state=State.GONE, presence=Presence.NONE, gone_at=NOW)
    assert tally([gone], [], NOW + 1).orders == 3, "what is gone was ordered all the same"


def test_spend_is_of_the_last_day_and_of_the_next_hour() -> None:
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT, **BOUGHT)
    assert tally([running], [], NOW).spend == pytest.approx(0.10)
    assert tally([running], [], NOW + 5 * HOUR).spend == pytest.approx(0.60)
    assert tally([running], [], NOW + 3 * DAY).spend == pytest.approx(2.50)
    gone = replace(running, state=State.GONE, presence=Presence.NONE, gone_at=NOW + 2 * HOUR)
    assert tally([gone], [], NOW + 5 * HOUR).spend == pytest.approx(0.20)
    assert tally([gone], [], NOW + DAY + HOUR).spend == pytest.approx(0.10)
    assert tally([gone], [], NOW + 2 * DAY).spend == 0
    asked = a_record(**BOUGHT)
    assert tally([asked], [], NOW + HOUR).spend == pytest.approx(0.10)
    refused = a_record(state=State.FAILED, ordered_at=NOW, **BOUGHT)
    assert tally([refused], [], NOW + 9 * HOUR).spend == 0


def test_machines_that_merely_look_like_ours_count_too() -> None:
    stray = Stray(machine_id="m-9", created_at=NOW - HOUR / 2, hourly=0.1)
    counted = tally([], [stray], NOW)
    assert (counted.machines, counted.orders) == (1, 1)
    assert counted.spend == pytest.approx(0.15)
    assert tally([], [replace(stray, created_at=NOW - 2 * HOUR)], NOW).orders == 0
    assert tally([], [replace(stray, created_at=NOW + 60)], NOW).spend == pytest.approx(0.1), "its clock is ahead"


# -- asking ------------------------------------------------------------------------------------------------------------


def test_a_guard_says_what_was_hit_and_is_out_of_resources_to_the_autoscaler() -> None:
    guard_usage = a_book(GuardLimits(max_machines=1))
    assert guard_usage.ask("sim", None) is None
    assert guard_usage.ask("sim", None) == failure(
        "guard", "guards.maxMachines is 1 for all clouds", ErrorClass.OUT_OF_RESOURCES
    )


def test_a_clouds_own_guard_and_the_one_over_all_both_hold() -> None:
    guard_usage = a_book(
        GuardLimits(max_machines=3), sim=GuardLimits(max_machines=2), other=GuardLimits(max_machines=2)
    )
    assert [guard_usage.ask("sim", None) is None for _ in range(3)] == [True, True, False]
    assert [guard_usage.ask("other", None) is None for _ in range(2)] == [True, False]
    assert guard_usage.ask("third", None) is not None


def test_an_order_is_asked_for_again_because_a_list_may_have_shown_more() -> None:
    guard_usage = a_book(GuardLimits(max_machines=2))
    assert guard_usage.ask("sim", None) is None
    guard_usage.put("sim", Tally(machines=3, waiting=1))
    refusal = guard_usage.order("sim", is_first=True)
    assert refusal is not None
    assert "maxMachines" in refusal.message


def test_a_retry_at_the_limit_is_not_refused_for_its_own_first_try() -> None:
    guard_usage = a_book(GuardLimits(max_machines=1))
    assert guard_usage.ask("sim", None) is None
    assert guard_usage.order("sim", is_first=True) is None
    assert guard_usage.order("sim", is_first=False) is None


def test_one_in_place_of_one_that_vanished_is_not_one_more() -> None:
    guard_usage = a_book(GuardLimits(max_machines=1), Tally(machines=1))
    assert guard_usage.ask("sim", None) is not None
    assert guard_usage.ask("sim", None, is_in_place=True) is None
    assert guard_usage.tallies["sim"].machines == 1


def test_without_a_limit_nothing_is_refused() -> None:
    guard_usage = a_book(counted=Tally(machines=10**6, orders=10**6, spend=1e9))
    assert not guard_usage.is_guarded
    assert guard_usage.ask("sim", PRICE) is None
    assert guard_usage.order("sim", is_first=True) is None
    assert a_book(sim=GuardLimits(max_machines=0)).is_guarded


def test_use_tells_every_guard_that_is_set_and_what_is_left() -> None:
    limits = GuardLimits(max_machines=5, max_creates_per_hour=6, max_spend_per_day=Money(amount=PRICE, currency="EUR"))
    guard_usage = a_book(limits, Tally(machines=2, orders=3, spend=0.12345), sim=GuardLimits(max_machines=4))
    told = [(use.scope, use.guard, use.used, use.limit, use.unit) for use in guard_usage.use()]
    assert told == [
        ("", "maxMachines", 2, 5, ""),
        ("", "maxCreatesPerHour", 3, 6, ""),
        ("", "maxSpendPerDay", 0.12, 0.10, "EUR"),
        ("sim", "maxMachines", 2, 4, ""),
    ]


# -- any order of them -------------------------------------------------------------------------------------------------


@dataclass
class Till:
    """What an engine does with GuardUsage, and the truth beside it: all calls that were ever made, with times."""

    limits: GuardLimits
    now: float = NOW
    records: list[MachineRecord] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard_usage = GuardUsage(self.limits, {})

    def ask(self) -> None:
        if self.guard_usage.ask("sim", PRICE) is None:
            name = f"m-{len(self.records)}"
            self.records.append(a_record(name, requested_at=self.now, state_since=self.now, **BOUGHT))

    def order(self, index: int) -> None:
        waiting = [
            i
            for i, r in enumerate(self.records)
            if r.state is State.REQUESTED or (r.state, r.presence) == (State.CREATING, Presence.NONE)
        ]
        if not waiting:
            return
        chosen = waiting[index % len(waiting)]
        record = self.records[chosen]
        refusal = self.guard_usage.order("sim", is_first=record.state is State.REQUESTED)
        if refusal is not None:
            self.records[chosen] = replace(record, state=State.FAILED, error=refusal, state_since=self.now)
            return
        self.calls.append(self.now)
        self.records[chosen] = replace(
            record,
            state=State.CREATING,
            presence=Presence.UNKNOWN,
            attempts=record.attempts + 1,
            attempt_at=self.now,
            ordered_at=record.ordered_at or self.now,
        )

    def settle(self, index: int, state: State, presence: Presence) -> None:
        """A call ends, or a machine goes, in any of the ways in which it may."""
        there = [i for i, r in enumerate(self.records) if r.presence is not Presence.NONE]
        if there:
            chosen = there[index % len(there)]
            gone_at = self.now if state is State.GONE else None
            self.records[chosen] = replace(
                self.records[chosen], state=state, presence=presence, gone_at=gone_at, state_since=self.now
            )

    def count(self) -> None:
        self.guard_usage.put("sim", tally(self.records, self.strays, self.now))

    @property
    def there(self) -> int:
        """Machines that the cloud may hold, and those that were asked for and will be ordered."""
        return sum(
            r.presence is not Presence.NONE or r.state in (State.REQUESTED, State.CREATING) for r in self.records
        )


ENDS = [
    (State.RUNNING, Presence.PRESENT),
    (State.FAILED, Presence.NONE),
    (State.CREATING, Presence.NONE),
    (State.DELETING, Presence.PRESENT),
    (State.GONE, Presence.NONE),
]
STEPS = st.one_of(
    st.just(("ask",)),
    st.tuples(st.just("order"), st.integers(0, 20)),
    st.tuples(st.just("settle"), st.integers(0, 20), st.sampled_from(ENDS)),
    st.just(("count",)),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 600.0, 1800.0, HOUR])),
)


def _play(till: Till, steps: Sequence[tuple[object, ...]]) -> None:
    for step in steps:
        match step:
            case ("ask",):
                till.ask()
            case ("order", int(index)):
                till.order(index)
            case ("settle", int(index), (State() as state, Presence() as presence)):
                till.settle(index, state, presence)
            case ("count",):
                till.count()
            case ("wait", float(seconds)):
                till.now += seconds
                till.count()  # as time goes by, lists come
        _check(till)


def _check(till: Till) -> None:
    limits = till.limits
    if limits.max_machines is not None:
        assert till.there <= limits.max_machines
    if limits.max_creates_per_hour is not None:
        assert all(
            sum(at <= call < at + HOUR for call in till.calls) <= limits.max_creates_per_hour for at in till.calls
        )


@given(steps=st.lists(STEPS, max_size=60), limit=st.integers(0, 4))
def test_never_more_machines_than_the_limit(steps: Sequence[tuple[object, ...]], limit: int) -> None:
    _play(Till(GuardLimits(max_machines=limit)), steps)


@given(steps=st.lists(STEPS, max_size=60), limit=st.integers(0, 4))
def test_never_more_creates_in_any_hour_than_the_limit(steps: Sequence[tuple[object, ...]], limit: int) -> None:
    _play(Till(GuardLimits(max_creates_per_hour=limit)), steps)


def test_a_machine_that_is_ordered_again_was_counted_meanwhile() -> None:
    """Else the order would bring back all the hours since the first one, after it was allowed."""
    till = Till(capped("0.35"))
    till.ask()
    till.order(0)
    till.settle(0, State.CREATING, Presence.NONE)
    till.now += HOUR
    before = tally(till.records, (), till.now).spend
    till.order(0)
    assert tally(till.records, (), till.now).spend == before


@given(steps=st.lists(STEPS, max_size=60), strays=st.integers(0, 6))
def test_nothing_is_bought_once_the_days_money_is_spent(steps: Sequence[tuple[object, ...]], strays: int) -> None:
    """The next hour of all that is there is part of the count: what was bought can be paid for."""
    limits, limit = capped("0.35"), 0.35 + 1e-9  # the same sum in another order is not always the same
    till = Till(limits, strays=[Stray(machine_id=f"s-{i}", created_at=NOW, hourly=0.1) for i in range(strays)])
    till.count()
    for step in steps:
        asked, sent = len(till.records), len(till.calls)
        true = tally(till.records, till.strays, till.now).spend
        _play(till, [step])
        if len(till.records) > asked:
            assert true + float(PRICE) <= limit
        if len(till.calls) > sent:
            assert true <= limit
