"""The table of a machine's life holds what law 5 says of it."""

from __future__ import annotations

import itertools

import pytest

from cloudgraft.engine.machines.states import BEGINNINGS, COUNTED, SHOWN, TRANSITIONS, amend, begin, is_released, move
from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.types import InstanceState
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import NOW, a_record

PAIRS = list(itertools.product(State, State))


def _reachable(start: State) -> set[State]:
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for source, target in TRANSITIONS:
            if source is here and target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_step_is_made_when_the_table_allows_it_and_raises_when_not(source: State, target: State) -> None:
    record = a_record(state=source)
    if (source, target) not in TRANSITIONS:
        with pytest.raises(InternalError, match=f"cannot go from {source.value} to {target.value}"):
            move(record, target, NOW + 5)
        return
    moved = move(record, target, NOW + 5)
    assert (moved.state, moved.state_since, moved.version) == (target, NOW + 5, record.version + 1)
    assert (moved.name, moved.placeholder, moved.requested_at) == (record.name, record.placeholder, NOW)
    assert moved.gone_at == (NOW + 5 if target is State.GONE else record.gone_at)


@pytest.mark.parametrize("state", list(State))
def test_a_life_begins_only_where_the_table_says_so(state: State) -> None:
    record = a_record(state=state, version=0)
    if state in BEGINNINGS:
        assert begin(record).version == 1
    else:
        with pytest.raises(InternalError, match="cannot begin"):
            begin(record)


def test_every_state_can_be_reached_and_every_life_can_end() -> None:
    assert set().union(*(_reachable(state) for state in BEGINNINGS)) == set(State)
    assert all(State.GONE in _reachable(state) for state in State)


def test_no_step_leads_from_an_end_back_to_what_was_unwanted() -> None:
    """What is being deleted is never wanted again (R53), and only an operator brings back what is gone."""
    assert {target for source, target in TRANSITIONS if source is State.DELETING} == {State.GONE}
    assert {target for source, target in TRANSITIONS if source is State.GONE} == {State.BOOTING}


def test_what_is_shown_and_what_counts_is_law_5() -> None:
    assert set(SHOWN) == set(State) - {State.GONE}
    assert set(State) - {State.DELETING, State.GONE} == COUNTED
    assert {state for state, shown in SHOWN.items() if shown is InstanceState.CREATING} == COUNTED - {State.RUNNING}
    assert SHOWN[State.RUNNING] is InstanceState.RUNNING
    assert SHOWN[State.DELETING] is InstanceState.DELETING


def test_every_edge_says_when_it_happens() -> None:
    assert all(len(when) > 10 for when in (*TRANSITIONS.values(), *BEGINNINGS.values()))


def test_an_amendment_keeps_the_state_and_its_time() -> None:
    record = a_record(state=State.BOOTING)
    amended = amend(record, machine_id="m-9")
    assert (amended.state, amended.state_since, amended.machine_id) == (State.BOOTING, NOW, "m-9")
    assert amended.version == record.version + 1


@pytest.mark.parametrize(("state", "presence"), list(itertools.product(State, Presence)))
def test_only_what_is_gone_to_us_and_still_there_was_released(state: State, presence: Presence) -> None:
    record: MachineRecord = a_record(state=state, presence=presence)
    assert is_released(record) == ((state, presence) == (State.GONE, Presence.PRESENT))
