"""Broken machines are replaced slowly, oldest first, and not at all when too many are broken at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.specs import RepairSettings
from cloudgraft.engine.machines.repair import plan_repair
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import a_record

SETTINGS = RepairSettings(after=timedelta(minutes=5), max_share=0.2)


def a_dead_one(number: int, *, age: float = 1000) -> MachineRecord:
    return a_record(f"m-{number}", state=State.RUNNING, presence=Presence.PRESENT, age=age)


def plan(*dead: MachineRecord, running: int = 10, under_way: int = 0) -> list[MachineRecord]:
    return list(plan_repair(dead, running=running, under_way=under_way, settings=SETTINGS))


def test_the_only_machine_of_a_group_is_replaced_too() -> None:
    """Also at minSize, where the autoscaler will not."""
    assert plan(a_dead_one(1), running=1) == [a_dead_one(1)]


def test_the_oldest_go_first() -> None:
    old, young = a_dead_one(1, age=2000), a_dead_one(2, age=100)
    assert plan(young, old, running=10, under_way=1) == [old]


@given(
    due=st.integers(0, 30),
    more=st.integers(0, 70),
    under_way=st.integers(0, 10),
    share=st.floats(0, 1, allow_nan=False),
)
def test_never_more_than_the_share_at_once(due: int, more: int, under_way: int, share: float) -> None:
    settings = RepairSettings(after=timedelta(minutes=5), max_share=share)
    broken = [a_dead_one(i) for i in range(due)]
    found = plan_repair(broken, running=due + more, under_way=under_way, settings=settings)
    allowed = max(1, share * (due + more))
    assert len(found) + under_way <= max(allowed, under_way)
    assert len(found) <= due
    if due and under_way == 0:
        assert found, "what may be replaced is"


@pytest.mark.parametrize("under_way", [1, 2, 3])
def test_what_is_under_way_counts(under_way: int) -> None:
    assert len(plan(a_dead_one(1), a_dead_one(2), running=10, under_way=under_way)) == max(0, 2 - under_way)
