"""Every decision, for the whole product of what can be known of a machine.

The cases are made by multiplication, those that cannot happen included: a decision must be harmless there too.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.machines.decide import Create, Decision, Delete, Move, Situation, Stay, decide, failure
from cloudgraft.engine.machines.observation import Observation
from cloudgraft.engine.machines.states import LOST, TRANSITIONS, is_lost, is_released
from cloudgraft.kube.objects import Node
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import NOW, a_machine, a_record, an_observation, observed

SETTINGS = EngineSettings()
AGES = {
    "young": 1.0,
    "past the create deadline": SETTINGS.create_deadline.total_seconds(),
    "past the join deadline": SETTINGS.join_deadline.total_seconds(),
    "past the time of a failed one": SETTINGS.failed_ttl.total_seconds(),
}
UNWANTED = (State.FAILED, State.DELETING, State.GONE)
FIXED = ("name", "group", "cloud", "placeholder", "settings", "tags", "requested_at", "is_adopted", "replaces")


def _sightings() -> Iterator[tuple[str, dict[str, Any]]]:
    """What can be seen of a machine, by name."""
    yield "nothing yet", {"at": None}
    yield "not seen for the whole deadline", {"awaited_for": SETTINGS.create_deadline.total_seconds()}
    late = {"machine": a_machine(state=MachineState.PENDING), "is_ours": True, "awaited_for": 9999.0}
    yield "pending for the whole deadline", late
    yield "its create was answered", {"is_ours": True}
    yield "missing once", {"absences": 1, "absent_at": NOW - 5}
    yield "absent", {"absences": 2, "absent_at": NOW - 5}
    yield "absent, after its create was answered", {"absences": 2, "absent_at": NOW - 5, "is_ours": True}
    for state in MachineState:
        yield f"seen {state.value}", {"machine": a_machine(state=state), "is_ours": True}
        stranger = a_machine(state=state, tags={})
        yield f"seen {state.value} without marks", {"machine": stranger, "unproven": stranger}
    yield "seen without a providerID", {"machine": a_machine(provider_id=None), "is_ours": True}
    yield "seen under another id", {"machine": a_machine("m-2"), "is_ours": True}
    yield "only a stranger of its name", {"unproven": a_machine("m-9", tags={})}
    for state in (MachineState.RUNNING, MachineState.DELETING):
        both = {"machine": a_machine(), "is_ours": True, "extras": (a_machine("m-2", state=state),)}
        yield f"seen, and another {state.value}", both
    lost = a_machine(tags={})
    yield "seen without marks, and another", {"machine": lost, "unproven": lost, "extras": (a_machine("m-2"),)}


def _sights() -> Iterator[tuple[str, Observation]]:
    for name, values in _sightings():
        for is_calling, retry_at, deletes, joined in itertools.product(
            (False, True), (0.0, NOW + 7), (0, 1), (None, False, True)
        ):
            told = f"{name}, calling {is_calling}, retry {retry_at}, deletes {deletes}, joined {joined}"
            yield (
                told,
                an_observation(is_open=is_calling, retry_at=retry_at, deletes=deletes, joined=joined, **values),
            )


def _situations() -> Iterator[Situation]:
    sold_out = failure("out_of_stock", "no more", ErrorClass.OUT_OF_RESOURCES)
    for may_create, is_paused, refusal in itertools.product((True, False), (True, False), (None, sold_out)):
        yield Situation(now=NOW, settings=SETTINGS, may_create=may_create, is_paused=is_paused, refusal=refusal)
    yield Situation(now=NOW, settings=SETTINGS, is_served=False)
    yield Situation(now=NOW, settings=SETTINGS, sees_cloud=False)
    yield Situation(now=NOW, settings=SETTINGS, sees_nodes=False)


SIGHTS = list(_sights())
SITUATIONS = list(_situations())


def _check_move(record: MachineRecord, observation: Observation, at: Situation, decision: Move) -> None:
    new = decision.record
    assert new.state is record.state or (record.state, new.state) in TRANSITIONS
    assert new.version == record.version + 1
    assert new != replace(record, version=new.version), "a move that moves nothing would be made for ever"
    taken_back = (record.state, new.state) == (State.GONE, State.BOOTING)
    if taken_back:
        assert is_lost(record), "only what nobody deleted comes back by itself"
        assert observation.listed.is_ours
        assert (new.gone_at, new.error) == (None, None)
    fixed = [name for name in FIXED if not taken_back or name != "requested_at"]  # its deadlines begin anew
    assert all(getattr(new, name) == getattr(record, name) for name in fixed)
    assert decision.cause
    if new.state is State.GONE:
        # Nothing that the cloud may hold is ever forgotten.
        assert new.presence is Presence.NONE
        assert new.gone_at is not None
    if new.presence is Presence.NONE and record.presence is not Presence.NONE:
        assert observation.listed.is_absent, "only two complete lists make it absent"
    if new.presence is Presence.PRESENT and record.presence is not Presence.PRESENT:
        assert observation.listed.machine is not None
    if new.machine_id != record.machine_id:
        assert observation.listed.machine is not None
        assert new.machine_id == observation.listed.machine.machine_id
    if new.state is State.FAILED:
        assert new.error is not None
        assert new.error.code
        assert new.error.message
        may_exist = record.state is State.BOOTING or (record.state, record.presence) == (
            State.CREATING,
            Presence.UNKNOWN,
        )
        if new.error.code == "deadline" and may_exist:
            assert observation.listed.awaited_for >= SETTINGS.create_deadline.total_seconds(), (
                "only observed time counts"
            )
            assert at.sees_cloud
            assert at.sees_nodes
            assert not observation.node.is_ready
    if new.state is State.RUNNING and record.state is not State.RUNNING:
        assert new.provider_id, "R30: a machine that runs is listed under its node's providerID"
    assert new.presence is not Presence.UNKNOWN or record.presence is Presence.UNKNOWN


def _check_create(record: MachineRecord, observation: Observation, at: Situation) -> None:
    """Law 3: never while something may be there, or may be coming."""
    assert record.state in (State.REQUESTED, State.CREATING)
    assert record.presence is not Presence.UNKNOWN or record.state is State.REQUESTED
    assert observation.listed.machine is None
    assert observation.listed.unproven is None
    assert not observation.calls.is_open or record.state is State.REQUESTED
    assert at.may_create
    assert not at.is_paused
    assert at.refusal is None or record.state is not State.REQUESTED
    assert at.now < record.requested_at + SETTINGS.create_deadline.total_seconds()
    assert at.now >= observation.calls.retry_at or record.state is State.REQUESTED


def _check_delete(record: MachineRecord, observation: Observation, at: Situation, decision: Delete) -> None:
    """Law 4: only what is proven to be ours, and of that only what is not wanted."""
    assert not is_released(record)
    assert not observation.calls.is_open
    assert not at.is_paused
    assert at.now >= observation.calls.retry_at
    assert decision.machine.state is not MachineState.DELETING
    assert decision.machine != observation.listed.unproven
    assert at.sees_cloud or record.state is State.DELETING, "only the autoscaler's word deletes during an outage"
    if decision.machine in observation.listed.extras:
        assert decision.kind == "double"
        assert decision.machine is not observation.listed.machine
        return
    assert record.state in UNWANTED
    assert observation.listed.is_ours
    if observation.listed.machine is not None:
        assert decision.machine == observation.listed.machine
    else:
        assert record.presence is Presence.PRESENT
        assert decision.machine.machine_id == record.machine_id
        assert not observation.listed.is_absent


def _check_stay(record: MachineRecord, observation: Observation, at: Situation, decision: Stay) -> None:
    """What waits is woken, or waits for a list or an answer that will come."""
    if decision.wake_at is not None:
        assert decision.wake_at > at.now, "an alarm in the past would ring for ever"
        return
    if record.presence is Presence.NONE and record.state in (State.REQUESTED, State.CREATING):
        assert observation.calls.is_open, "it has a deadline"
    elif record.state in (State.CREATING, State.BOOTING):
        is_late = observation.listed.awaited_for >= SETTINGS.create_deadline.total_seconds()
        assert (
            observation.calls.is_open or observation.node.is_ready or not (is_late and at.sees_cloud and at.sees_nodes)
        )
    assert record.state is not State.FAILED, "it has its time"
    if record.state is State.RUNNING:
        assert observation.node.joined is not False
    if record.state is State.DELETING and at.sees_cloud:
        going = observation.listed.machine is not None and observation.listed.machine.state is MachineState.DELETING
        is_open = record.presence is Presence.UNKNOWN
        assert observation.calls.is_open or at.is_paused or going or is_open or not observation.listed.is_ours


def _check(record: MachineRecord, observation: Observation, at: Situation, decision: Decision) -> None:
    match decision:
        case Move():
            _check_move(record, observation, at, decision)
        case Create():
            _check_create(record, observation, at)
        case Delete():
            _check_delete(record, observation, at, decision)
        case Stay():
            _check_stay(record, observation, at, decision)


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("presence", list(Presence))
@pytest.mark.parametrize("state", list(State))
def test_no_decision_does_harm(state: State, presence: Presence, age: str) -> None:
    record = a_record(state=state, presence=presence, age=AGES[age])
    _check_all(record, age)
    if state is State.GONE:
        _check_all(replace(record, error=failure(LOST, "its cloud stopped showing it")), age)


def _check_all(record: MachineRecord, age: str) -> None:
    state, presence = record.state, record.presence
    for told, observation in SIGHTS:
        if observation.node.joined is not None and state is not State.RUNNING:
            continue  # nobody else asks
        before = copy.copy(observation)
        for at in SITUATIONS:
            decision = decide(record, observation, at)
            try:
                _check(record, observation, at, decision)
            except AssertionError as error:
                raise AssertionError(f"{state.value} {presence.value} {age}; {told}; {at}: {decision}") from error
        assert observation == before, "a decision looks, and touches nothing"


def test_the_product_is_not_empty_of_what_matters() -> None:
    """The checks above would hold for a function that never does anything."""
    made = {
        type(decide(a_record(state=state, presence=presence, age=1.0), observation, at)).__name__
        for state, presence in itertools.product(State, Presence)
        for _, observation in SIGHTS[::5]
        for at in SITUATIONS
    }
    assert made == {"Move", "Create", "Delete", "Stay"}


# -- single rules, as sentences ----------------------------------------------------------------------------------------

AT = Situation(now=NOW, settings=SETTINGS)


def test_what_was_never_sent_is_created_at_once() -> None:
    assert decide(a_record(), an_observation(), AT) == Create()


def test_nothing_is_created_while_a_machine_of_that_name_is_seen_even_a_stranger() -> None:
    for state in (State.REQUESTED, State.CREATING):
        stranger = an_observation(unproven=a_machine("m-9", tags={}))
        assert isinstance(decide(a_record(state=state), stranger, AT), Stay)
        late = decide(a_record(state=state, age=AGES["past the create deadline"]), stranger, AT)
        assert isinstance(late, Move)
        assert late.record.error is not None
        assert late.record.error.code == "unproven"
        assert "m-9" in late.record.error.message


def test_an_unknown_outcome_is_settled_before_anything_is_created_again() -> None:
    record = a_record(state=State.CREATING, presence=Presence.UNKNOWN)
    assert isinstance(decide(record, an_observation(), AT), Stay)
    assert isinstance(decide(record, an_observation(absences=1), AT), Stay)
    settled = decide(record, an_observation(absences=2), AT)
    assert isinstance(settled, Move)
    assert (settled.record.state, settled.record.presence) == (State.CREATING, Presence.NONE)
    assert decide(settled.record, an_observation(absences=2), AT) == Create()


def test_a_late_success_is_adopted() -> None:
    found = decide(a_record(state=State.CREATING, presence=Presence.UNKNOWN), an_observation(machine=a_machine()), AT)
    assert isinstance(found, Move)
    assert (found.record.state, found.record.machine_id) == (State.BOOTING, "m-1")


def test_a_call_to_create_is_waited_for_even_past_the_deadline() -> None:
    record = a_record(state=State.CREATING, presence=Presence.UNKNOWN, age=AGES["past the create deadline"])
    assert decide(record, an_observation(is_open=True), AT) == Stay()
    failed = decide(record, an_observation(awaited_for=AGES["past the create deadline"]), AT)
    assert isinstance(failed, Move)
    assert (failed.record.state, failed.record.presence) == (State.FAILED, Presence.UNKNOWN)


@pytest.mark.parametrize("state", [State.CREATING, State.BOOTING])
def test_a_deadline_runs_only_while_the_machine_can_be_seen(state: State) -> None:
    presence = Presence.UNKNOWN if state is State.CREATING else Presence.PRESENT
    record, enough = a_record(state=state, presence=presence, age=86_400.0), SETTINGS.create_deadline.total_seconds()
    assert decide(record, an_observation(awaited_for=enough - 1), AT) == Stay(), "a day unseen makes nothing late"
    late = an_observation(awaited_for=enough)
    assert decide(record, late, replace(AT, sees_cloud=False)) == Stay()
    assert decide(record, late, replace(AT, sees_nodes=False)) == Stay()
    failed = decide(record, late, AT)
    assert isinstance(failed, Move)
    assert failed.record.state is State.FAILED


@pytest.mark.parametrize("state", [MachineState.PENDING, MachineState.FAILED])
def test_what_is_joined_and_ready_is_not_given_up_for_what_its_cloud_says(state: MachineState) -> None:
    record = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    observation = an_observation(machine=a_machine(state=state), is_ours=True, awaited_for=9999.0, joined=True)
    assert decide(record, observation, AT) == Stay()
    assert isinstance(decide(record, observed(observation, unready_since=NOW - 5), AT), Move)


def test_during_an_outage_nothing_is_deleted_of_our_own_accord() -> None:
    outage = replace(AT, sees_cloud=False)
    for state in (State.FAILED, State.GONE):
        record = a_record(state=state, presence=Presence.PRESENT if state is State.FAILED else Presence.NONE)
        observation = an_observation(machine=a_machine(), is_ours=True)
        assert isinstance(decide(record, observation, outage), Stay)
        assert isinstance(decide(record, observation, AT), Delete)
    double = an_observation(machine=a_machine(), is_ours=True, extras=(a_machine("m-2"),))
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT)
    assert isinstance(decide(running, double, outage), Stay)
    assert isinstance(decide(running, double, AT), Delete)


def test_a_long_outage_makes_the_proof_of_ownership_too_old_to_delete_by() -> None:
    record, outage = a_record(state=State.DELETING, presence=Presence.PRESENT), replace(AT, sees_cloud=False)
    fresh = an_observation(machine=a_machine(), is_ours=True, at=NOW - 60)
    assert decide(record, fresh, outage) == Delete(a_machine())
    assert decide(record, observed(fresh, at=NOW - 3600), outage) == Stay()
    assert decide(record, observed(fresh, at=NOW - 3600), AT) == Delete(a_machine())


def test_a_failed_machine_whose_time_is_up_is_not_deleted_during_an_outage() -> None:
    record = a_record(state=State.FAILED, presence=Presence.PRESENT, age=AGES["past the time of a failed one"])
    observation, outage = an_observation(machine=a_machine(), is_ours=True), replace(AT, sees_cloud=False)
    ended = decide(record, observation, outage)
    assert isinstance(ended, Move)
    assert ended.record.state is State.DELETING
    assert decide(ended.record, observation, outage) == Stay()
    assert isinstance(decide(ended.record, observation, AT), Delete)


@pytest.mark.parametrize(
    ("word", "code", "error_class"),
    [
        ("out_of_stock", "out_of_stock", ErrorClass.OUT_OF_RESOURCES),
        ("unauthenticated", "unauthenticated", ErrorClass.OTHER),
        ("", "boot_failed", ErrorClass.OTHER),
        ("a word of a newer driver", "boot_failed", ErrorClass.OTHER),
    ],
)
def test_r35_a_machine_that_failed_after_it_was_accepted_is_told_in_its_drivers_words(
    word: str, code: str, error_class: ErrorClass
) -> None:
    """Law 7: many a cloud finds out that it is full only after it has accepted."""
    seen = replace(a_machine(), state=MachineState.FAILED, failure=word, reason="No valid host was found")
    record = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    found = decide(record, an_observation(machine=seen, is_ours=True), AT)
    assert isinstance(found, Move)
    assert found.record.state is State.FAILED
    assert found.record.error == failure(code, "No valid host was found", error_class)


def test_a_failed_machine_is_cleared_at_once_and_kept_in_the_list() -> None:
    record = a_record(state=State.FAILED, presence=Presence.PRESENT)
    assert decide(record, an_observation(machine=a_machine(), is_ours=True), AT) == Delete(a_machine())
    gone = decide(record, an_observation(absences=2), AT)
    assert isinstance(gone, Move)
    assert (gone.record.state, gone.record.presence) == (State.FAILED, Presence.NONE)
    assert decide(gone.record, an_observation(), AT) == Stay(NOW + SETTINGS.failed_ttl.total_seconds())


def test_a_refused_machine_that_turns_up_is_cleared_at_once() -> None:
    """A cloud that says no and does it all the same."""
    found = decide(a_record(state=State.FAILED), an_observation(machine=a_machine(), is_ours=True), AT)
    assert isinstance(found, Move)
    assert found.record.presence is Presence.PRESENT
    assert isinstance(decide(found.record, an_observation(machine=a_machine(), is_ours=True), AT), Delete)


def test_a_machine_that_ignores_its_deletion_does_not_keep_its_double_alive_nor_the_other_way_round() -> None:
    record = a_record(state=State.DELETING, presence=Presence.PRESENT)
    asked = set()
    for deletes in range(4):
        observation = an_observation(machine=a_machine(), is_ours=True, extras=(a_machine("m-2"),), deletes=deletes)
        decision = decide(record, observation, AT)
        assert isinstance(decision, Delete)
        asked.add(decision.machine.machine_id)
    assert asked == {"m-1", "m-2"}


def test_the_record_has_the_kept_machines_id_before_the_other_is_deleted() -> None:
    """Else "not found" for the other would be taken for the end of the one that is kept."""
    for state in (State.BOOTING, State.RUNNING, State.FAILED, State.DELETING):
        record = a_record(state=state, presence=Presence.PRESENT, machine_id="m-2")
        known = decide(record, an_observation(machine=a_machine("m-1"), is_ours=True, extras=(a_machine("m-2"),)), AT)
        assert isinstance(known, Move)
        assert known.record.machine_id == "m-1"


def test_a_machine_that_returns_is_deleted_but_not_one_that_was_released() -> None:
    observation = an_observation(machine=a_machine(), is_ours=True)
    assert isinstance(decide(a_record(state=State.GONE), observation, AT), Delete)
    released = a_record(state=State.GONE, presence=Presence.PRESENT)
    assert decide(released, observation, AT) == Stay()
    assert decide(released, observed(observation, extras=(a_machine("m-2"),)), AT) == Stay()


def test_a_machine_that_vanished_and_comes_back_is_taken_back_unless_somebody_deleted_it() -> None:
    """Lists that were wrong twice must not cost a machine and the pods on it."""
    running = a_record(state=State.RUNNING, presence=Presence.PRESENT, age=100)
    vanished = decide(running, an_observation(absences=2), AT)
    assert isinstance(vanished, Move)
    assert is_lost(vanished.record)
    observation = an_observation(machine=a_machine(), is_ours=True)
    back = decide(vanished.record, observation, AT)
    assert isinstance(back, Move)
    assert (back.record.state, back.record.presence) == (State.BOOTING, Presence.PRESENT)
    assert isinstance(decide(replace(vanished.record, error=None), observation, AT), Delete)
    assert isinstance(decide(vanished.record, observation, replace(AT, is_served=False)), Delete)
    dead = observed(observation, machine=a_machine(state=MachineState.FAILED))
    assert isinstance(decide(vanished.record, dead, AT), Delete)
    for used in (replace(AT, is_used=True), replace(AT, sees_nodes=False)):
        assert decide(vanished.record, dead, used) == Stay(), "its node is or may be ready, whatever its cloud says"
        assert decide(vanished.record, observation, replace(used, is_served=False)) == Stay()
    bare = a_machine(tags={})
    assert decide(vanished.record, an_observation(machine=bare, unproven=bare), AT) == Stay()


def test_a_running_machine_must_join_only_where_the_cluster_can_be_seen() -> None:
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT, age=AGES["past the join deadline"])
    deadline = SETTINGS.join_deadline.total_seconds()
    seen = an_observation(machine=a_machine(), is_ours=True, unjoined_for=deadline)
    assert decide(record, seen, AT) == Stay()
    assert decide(record, observed(seen, joined=True), AT) == Stay()
    late = decide(record, observed(seen, joined=False), AT)
    assert isinstance(late, Move)
    assert late.record.error is not None
    assert late.record.error.code == "join_deadline"


def test_only_time_in_which_the_cluster_was_seen_counts_against_a_machine_without_a_node() -> None:
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT, age=AGES["past the join deadline"])
    deadline = SETTINGS.join_deadline.total_seconds()
    seen = an_observation(machine=a_machine(), is_ours=True, joined=False, unjoined_for=deadline - 7)
    assert decide(record, seen, AT) == Stay(NOW + 7)


def test_a_machine_whose_node_was_there_once_does_not_fail_for_the_lack_of_it() -> None:
    """The autoscaler deletes what is not registered; its pods may still run."""
    record = a_record(state=State.RUNNING, presence=Presence.PRESENT, age=AGES["past the join deadline"])
    seen = an_observation(machine=a_machine(), is_ours=True, joined=False, last=Node(name="n"), unjoined_for=9999.0)
    assert decide(record, seen, AT) == Stay()


def test_what_kept_the_cloud_from_being_asked_is_told_when_time_is_up() -> None:
    record = a_record(state=State.CREATING, age=AGES["past the create deadline"])
    failed = decide(record, an_observation(trouble="no token"), AT)
    assert isinstance(failed, Move)
    assert failed.record.error is not None
    assert failed.record.error.message == "the cloud did not create it in time: no token"


def test_what_the_cloud_says_of_a_machine_that_never_ran_is_told_when_time_is_up() -> None:
    age = AGES["past the create deadline"]
    record = a_record(state=State.BOOTING, presence=Presence.PRESENT, age=age)
    seen = a_machine(state=MachineState.PENDING, reason="its switch is broken")
    failed = decide(record, an_observation(machine=seen, is_ours=True, awaited_for=age), AT)
    assert isinstance(failed, Move)
    assert failed.record.error is not None
    why = "it did not run in time, the cloud reports it as pending: its switch is broken"
    assert failed.record.error.message == why


def test_a_failure_always_has_a_code() -> None:
    """R34: without one the autoscaler sees no error."""
    assert failure("", "hm").code == "error"


def test_deadlines_are_the_settings_own() -> None:
    at = replace(AT, settings=EngineSettings(create_deadline=timedelta(seconds=5), failed_ttl=timedelta(seconds=7)))
    assert isinstance(decide(a_record(age=4.9), an_observation(), replace(at, is_paused=True)), Stay)
    assert isinstance(decide(a_record(age=5), an_observation(), replace(at, is_paused=True)), Move)
    assert decide(a_record(state=State.FAILED, age=6), an_observation(), at) == Stay(NOW + 1)
    assert isinstance(decide(a_record(state=State.FAILED, age=7), an_observation(), at), Move)


def test_what_is_there_before_it_was_asked_for_is_taken_as_it_is() -> None:
    """A machine whose create() was never recorded, as after a journal was put back from a backup."""
    found = decide(a_record(), an_observation(machine=a_machine(), is_ours=True), AT)
    assert isinstance(found, Move)
    assert (found.record.state, found.record.provider_id) == (State.BOOTING, "sim://m-1")
    assert found.record.ordered_at == NOW
