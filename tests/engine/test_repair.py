"""Broken machines are replaced slowly, oldest first, and not at all when too many are broken at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.repair import RepairPlan, plan_repair
from cloudgraft.engine.specs import RepairSettings
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import NOW, a_record

SETTINGS = RepairSettings(after=timedelta(minutes=5), max_share=0.2)


def a_dead_one(number: int, *, dead_for: float = 600, age: float = 1000) -> tuple[MachineRecord, float]:
    record = a_record(f"m-{number}", state=State.RUNNING, presence=Presence.PRESENT, age=age)
    return record, NOW - dead_for + SETTINGS.after.total_seconds()


def plan(*dead: tuple[MachineRecord, float], running: int = 10, under_way: int = 0) -> RepairPlan:
    return plan_repair(dead, running=running, under_way=under_way, now=NOW, settings=SETTINGS)


def test_a_machine_that_is_dead_for_long_is_replaced() -> None:
    dead = a_dead_one(1)
    assert plan(dead) == RepairPlan((dead[0],))
    assert plan(a_dead_one(1, dead_for=300)).replace
    assert not plan(a_dead_one(1, dead_for=299)).replace


def test_the_only_machine_of_a_group_is_replaced_too() -> None:
    """Also at minSize, where the autoscaler will not."""
    assert plan(a_dead_one(1), running=1).replace


def test_the_oldest_go_first() -> None:
    old, young = a_dead_one(1, age=2000), a_dead_one(2, age=100)
    assert plan(young, old, running=10, under_way=1) == RepairPlan((old[0],))


def test_the_breaker_opens_when_more_are_broken_than_may_be_replaced() -> None:
    assert plan(a_dead_one(1), a_dead_one(2), a_dead_one(3), running=10) == RepairPlan(is_broken=True)
    assert plan(a_dead_one(1), a_dead_one(2), running=2) == RepairPlan(is_broken=True)


def test_it_can_be_switched_off() -> None:
    off = RepairSettings(enabled=False)
    assert plan_repair([a_dead_one(1)], running=9, under_way=0, now=NOW, settings=off) == RepairPlan()


@given(
    dead=st.integers(0, 30),
    more=st.integers(0, 70),
    under_way=st.integers(0, 10),
    share=st.floats(0, 1, allow_nan=False),
    for_long=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_never_more_than_the_share_at_once(
    dead: int, more: int, under_way: int, share: float, for_long: list[bool]
) -> None:
    settings = RepairSettings(after=timedelta(minutes=5), max_share=share)
    broken = [a_dead_one(i, dead_for=600 if for_long[i] else 10) for i in range(dead)]
    found = plan_repair(broken, running=dead + more, under_way=under_way, now=NOW, settings=settings)
    allowed = max(1, share * (dead + more))
    due = sum(for_long[:dead])
    assert len(found.replace) + under_way <= max(allowed, under_way)
    assert len(found.replace) <= due
    assert found.is_broken == (due > int(allowed))
    assert not (found.is_broken and found.replace)
    if 0 < due <= int(allowed) and under_way == 0:
        assert found.replace, "what may be replaced is"


@pytest.mark.parametrize("under_way", [1, 2, 3])
def test_what_is_under_way_counts(under_way: int) -> None:
    assert len(plan(a_dead_one(1), a_dead_one(2), running=10, under_way=under_way).replace) == max(0, 2 - under_way)
