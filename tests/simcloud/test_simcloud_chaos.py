"""What goes wrong when it is told to: each field of chaos, in a cloud whose time stands still."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.sdk import (
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)
from cloudgraft.sdk.errors import Retry
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds, Span
from cloudgraft.simcloud.outcomes import CloudFailureError, LostAnswerError, Operation
from tests.simcloud.sim_world import World, an_order


def attempt(world: World, name: str = "m-1") -> CloudgraftError | None:
    """A create as a client meets it; None when it got its answer."""
    outcome = world.cloud.outcome(Operation.CREATE)
    try:
        outcome.carry_out(lambda: world.cloud.create(an_order(name)), world.cloud.postpone)
    except CloudgraftError as error:
        return error
    return None


# -- calls -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "is_done"),
    [
        ("rateLimits", RateLimitedError, False),
        ("unavailable", UnavailableError, False),
        ("errors", CloudFailureError, False),
        ("errorsAfter", CloudFailureError, True),
        ("dropped", LostAnswerError, False),
        ("lost", LostAnswerError, True),
    ],
)
def test_a_fault_is_met_by_the_caller_and_the_work_is_done_or_not(
    fault: str, error: type[CloudgraftError], is_done: bool
) -> None:
    world = World()
    world.chaos(create={fault: {"next": 1}}, retryAfter=7)
    met = attempt(world)
    assert type(met) is error
    assert met.retry_after == (7 if fault == "rateLimits" else None)
    assert bool(world.states()) is is_done
    if is_done:
        assert met.retry is Retry.SETTLE_FIRST  # nobody may try again before a list has shown it (law 3)
    assert attempt(world) is None
    assert len(world.cloud.ledger()) == 1
    assert list(world.cloud.faults().values()) == [1]
    assert world.cloud.calls() == {"create": 2}


def test_a_late_call_is_done_when_nobody_waits_for_it_any_more() -> None:
    world = World()
    world.chaos(create={"late": {"next": 1}}, lateBy=60)
    assert isinstance(attempt(world), DeadlineError)
    world.clock.pass_(59)
    assert world.states() == {}
    world.clock.pass_(1)
    assert world.states() == {"m-1": "pending"}


def test_a_late_call_that_is_refused_troubles_nobody() -> None:
    world = World(quota=0)
    world.chaos(create={"late": 1})
    attempt(world)
    world.clock.pass_(1)
    assert world.states() == {}


def test_the_answer_of_a_refusal_can_be_lost_too() -> None:
    world = World(quota=0)
    world.chaos(create={"lost": 1})
    assert isinstance(attempt(world), LostAnswerError)


def test_only_the_operation_that_is_named_is_disturbed() -> None:
    world = World()
    world.chaos(delete={"lost": 1}, list={"errors": 1})
    assert attempt(world) is None
    for operation, fault in ((Operation.DELETE, "lost"), (Operation.LIST, "errors"), (Operation.READ, "")):
        assert world.cloud.outcome(operation).fault == fault


def test_latency_is_drawn_from_its_span_and_an_operation_may_have_its_own() -> None:
    world = World()
    world.chaos(latency=[1, 3], create={"latency": 0.5})
    drawn = [world.cloud.outcome(Operation.LIST).delay for _ in range(50)]
    assert len(set(drawn)) > 10
    assert all(1 <= delay <= 3 for delay in drawn)
    assert world.cloud.outcome(Operation.CREATE).delay == 0.5
    assert 1 <= world.cloud.outcome(Operation.READ).delay <= 3


def test_a_hang_ends_by_itself_or_when_chaos_is_set_again() -> None:
    world = World()
    assert world.cloud.hangs_for() == 0
    world.chaos(hang=60)
    world.clock.pass_(59)
    assert world.cloud.hangs_for() == 1
    world.clock.pass_(1)
    assert world.cloud.hangs_for() == 0
    world.chaos(hang=True)
    world.clock.pass_(1e6)
    assert world.cloud.hangs_for() == math.inf
    world.chaos()
    assert world.cloud.hangs_for() == 0


def test_work_that_waits_for_a_hanging_cloud_is_done_when_it_moves_again() -> None:
    world = World()
    world.chaos(hang=True)
    world.cloud.postpone(lambda: world.cloud.create(an_order()))
    world.clock.pass_(100)
    assert world.states() == {}
    world.chaos()
    assert world.states() == {"m-1": "pending"}


# -- machines ----------------------------------------------------------------------------------------------------------


def test_the_time_to_boot_and_to_go_can_be_set() -> None:
    world = World()
    world.chaos(bootTime=100, deleteTime=[50, 50])
    machine = world.create()
    world.clock.pass_(99)
    assert world.states() == {"m-1": "pending"}
    world.clock.pass_(1)
    assert world.states() == {"m-1": "running"}
    world.cloud.delete(machine)
    world.clock.pass_(49)
    assert world.states() == {"m-1": "deleting"}
    world.clock.pass_(1)
    assert world.states() == {}


def test_a_machine_that_never_boots_can_be_deleted() -> None:
    world = World(delete_time=timedelta(0))
    world.chaos(neverBoots={"next": 1})
    machine = world.create("m-1")
    world.create("m-2")
    world.clock.pass_(1e6)
    assert world.states() == {"m-1": "pending", "m-2": "running"}
    world.cloud.delete(machine)
    assert world.states() == {"m-2": "running"}


def test_a_machine_dies_after_its_time() -> None:
    world = World(boot_time=timedelta(seconds=5))
    world.chaos(dies={"next": 1}, diesAfter=60)
    world.create("m-1")
    world.create("m-2")
    world.clock.pass_(59)
    assert world.states()["m-1"] == "running"
    world.clock.pass_(1)
    assert world.states() == {"m-1": "failed", "m-2": "running"}


def test_an_ignored_delete_is_accepted_and_counted_and_nothing_happens() -> None:
    world = World(boot_time=timedelta(0), delete_time=timedelta(0))
    world.chaos(ignoresDelete={"next": 2})
    machine = world.create()
    for _ in range(2):
        world.cloud.delete(machine)
        world.clock.pass_(1e6)
        assert world.states() == {"m-1": "running"}
    world.cloud.delete(machine)
    assert world.states() == {}
    assert world.cloud.ledger()[0].deletes == 3


@pytest.mark.parametrize("after", [0, 60])
def test_tags_are_lost_at_once_or_later(after: float) -> None:
    world = World()
    world.chaos(losesTags={"next": 1}, losesTagsAfter=after)
    world.create("m-1", tags={"a": "b"})
    world.create("m-2", tags={"a": "b"})
    assert [bool(machine.tags) for machine in world.cloud.machines()] == [after > 0, True]
    world.clock.pass_(after)
    assert [bool(machine.tags) for machine in world.cloud.machines()] == [False, True]


def test_quota_and_stock_of_chaos_stand_above_those_of_the_options() -> None:
    world = World(quota=0, stock={"small": 0, "gpu": 0})
    world.chaos(quota=2, stock={"small": 1})
    world.create("m-1")
    with pytest.raises(OutOfStockError):
        world.create("m-2")
    with pytest.raises(OutOfStockError):
        world.create("m-2", "gpu")
    world.create("m-2", "large")
    with pytest.raises(QuotaExceededError):
        world.create("m-3", "large")


# -- odds --------------------------------------------------------------------------------------------------------------


def strikes(odds: object, times: int, *, seed: int = 0) -> list[bool]:
    world = World()
    world.chaos(create={"lost": odds}, seed=seed)
    return [world.cloud.outcome(Operation.CREATE).fault == "lost" for _ in range(times)]


def test_counted_faults_strike_when_they_are_due_and_no_more() -> None:
    assert strikes({"next": 2}, 4) == [True, True, False, False]
    assert strikes({"after": 2, "next": 1}, 4) == [False, False, True, False]
    assert strikes({"after": 1, "chance": 1}, 3) == [False, True, True]
    assert strikes(0, 3) == [False, False, False]
    assert strikes(1, 3) == [True, True, True]


def test_the_same_seed_gives_the_same_faults() -> None:
    first = strikes(0.3, 200, seed=1)
    assert first == strikes(0.3, 200, seed=1)
    assert first != strikes(0.3, 200, seed=2)
    assert 30 < sum(first) < 90


def test_new_chaos_restarts_the_counts() -> None:
    world = World()
    for _ in range(2):
        world.chaos(create={"dropped": {"next": 1}})
        assert isinstance(attempt(world), LostAnswerError)
        assert attempt(world) is None


# -- JSON --------------------------------------------------------------------------------------------------------------

counts = st.integers(0, 100)
seconds = st.floats(0, 1000)
odds = st.builds(Odds, chance=st.floats(0, 1), next=counts, after=counts)
spans = st.builds(Span, seconds) | st.builds(lambda low, more: Span(low, low + more), seconds, seconds)
faults = st.builds(
    Faults,
    latency=st.none() | spans,
    **{field.name: odds for field in fields(Faults) if field.name != "latency"},
)
chaoses = st.builds(
    Chaos,
    **{field.name: odds for field in fields(Chaos) if isinstance(field.default, Odds)},
    **{field.name: faults for field in fields(Chaos) if isinstance(field.default, Faults)},
    **{field.name: spans for field in fields(Chaos) if isinstance(field.default, Span)},
    boot_time=st.none() | spans,
    delete_time=st.none() | spans,
    list_lag=st.none() | spans,
    seed=counts,
    hang=seconds | st.booleans(),
    quota=st.none() | counts,
    stock=st.dictionaries(st.sampled_from(["small", "gpu"]), counts),
    retry_after=seconds,
    lost_after=seconds,
    late_by=seconds,
)


@settings(deadline=None)
@given(chaoses)
@pytest.mark.thorough
def test_chaos_survives_json(chaos: Chaos) -> None:
    assert Chaos.from_json(chaos.to_json()) == chaos


def test_no_chaos_is_written_as_nothing() -> None:
    assert Chaos().to_json() == {}
    assert Chaos.from_json({}) == Chaos()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"lateny": 1}, "did you mean 'latency'"),
        ({"create": {"lsot": 1}}, r"chaos\.create: unknown key 'lsot'"),
        ({"create": {"lost": {"nxt": 1}}}, r"chaos\.create\.lost"),
        ({"create": {"lost": 1.1}}, "from 0 to 1"),
        ({"create": {"lost": -0.1}}, "from 0 to 1"),
        ({"create": {"lost": True}}, r"chaos\.create\.lost"),
        ({"create": {"lost": {"next": 1.5}}}, "whole number"),
        ({"create": {"lost": {"next": -1}}}, "whole number"),
        ({"create": []}, "mapping"),
        ({"latency": [1]}, r"\[shortest, longest\]"),
        ({"latency": [3, 1]}, "ends before it begins"),
        ({"latency": "1s"}, "number"),
        ({"latency": float("nan")}, "number"),
        ({"latency": float("inf")}, "number"),
        ({"hang": "yes"}, "seconds, or true"),
        ({"quota": -1}, "whole number"),
        ({"quota": True}, "whole number"),
        ({"stock": {"gpu": -1}}, r"stock\.gpu"),
        ({"stock": [1]}, "mapping"),
        ({"seed": 1.5}, "whole number"),
        ([], "mapping"),
        (None, "mapping"),
        ({1: 2}, "mapping"),
        ({"x" * 10_000: 1}, "unknown key"),
    ],
)
def test_chaos_that_makes_no_sense_is_refused_with_its_place(data: object, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        Chaos.from_json(data)
    assert len(str(caught.value)) < 1000


def test_chaos_about_a_shape_that_is_not_there_is_refused_and_nothing_changes() -> None:
    world = World()
    world.chaos(quota=3)
    with pytest.raises(InvalidArgumentError, match="no shape 'smal'"):
        world.chaos(stock={"smal": 0})
    assert world.cloud.chaos == Chaos(quota=3)


@pytest.mark.parametrize("make", [lambda: Odds(chance=2), lambda: Span(-1), lambda: Span(2, 1)])
def test_chaos_made_in_python_is_checked_too(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()
