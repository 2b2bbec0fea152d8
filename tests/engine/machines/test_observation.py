"""What may be concluded from a cloud's lists: absence late and only for certain, ownership only with proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines.observation import LONGEST_GAP, Looker, Observation, look
from cloudgraft.engine.new_records import found
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState, Ownership, PartialList
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import IDENTITY, NAME, NOW, a_listing, a_machine, a_record, a_spec, an_observation

CLOUD = CloudSettings(name="sim", create_timeout=timedelta(seconds=30))
RUNNING = a_record(state=State.RUNNING, presence=Presence.PRESENT, age=1000)


def a_looker(
    *,
    list_delay: float = 0,
    complete_list: bool = True,
    ownership: Ownership = Ownership.TAGS,
    idempotency: Idempotency = Idempotency.TOKEN,
) -> Looker:
    traits = DriverTraits(
        list_delay=timedelta(seconds=list_delay),
        complete_list=complete_list,
        ownership=ownership,
        idempotency=idempotency,
    )
    return Looker(IDENTITY, traits, CLOUD)


def seen(
    record: MachineRecord,
    *machines: Machine,
    looker: Looker | None = None,
    observation: Observation | None = None,
    at: float = NOW,
) -> Observation:
    """What one list tells."""
    observation = observation or an_observation()
    listed = look(record, observation, a_listing(*machines, began=at), looker or a_looker())
    return replace(observation, listed=listed)


# -- time that counts --------------------------------------------------------------------------------------------------

BOOTING = a_record(state=State.BOOTING, presence=Presence.PRESENT)


def listed(
    record: MachineRecord, observation: Observation, machine: Machine, *, at: float, follows: float | None
) -> Observation:
    return replace(
        observation, listed=look(record, observation, a_listing(machine, began=at, follows=follows), a_looker())
    )


def test_time_counts_between_two_lists_that_both_have_the_machine() -> None:
    observation, machine = an_observation(at=None), a_machine(state=MachineState.STOPPED)
    observation = listed(BOOTING, observation, machine, at=NOW, follows=NOW - 10)
    assert (observation.listed.awaited_for, observation.listed.dead_for) == (0.0, 0.0), (
        "the list before this one did not know it"
    )
    observation = listed(BOOTING, observation, machine, at=NOW + 10, follows=NOW)
    observation = listed(BOOTING, observation, machine, at=NOW + 25, follows=NOW + 10)
    assert (observation.listed.awaited_for, observation.listed.dead_for) == (25.0, 25.0)


def test_time_in_which_a_list_failed_does_not_count() -> None:
    observation, machine = an_observation(at=NOW), a_machine(state=MachineState.PENDING)
    observation = listed(BOOTING, observation, machine, at=NOW + 3600, follows=None)
    assert observation.listed.awaited_for == 0.0
    observation = listed(BOOTING, observation, machine, at=NOW + 3610, follows=NOW + 3600)
    assert observation.listed.awaited_for == 10.0


def test_of_a_stopped_process_only_a_part_of_the_time_counts() -> None:
    observation = an_observation(at=NOW)
    observation = listed(BOOTING, observation, a_machine(state=MachineState.PENDING), at=NOW + 86_400, follows=NOW)
    assert observation.listed.awaited_for == LONGEST_GAP


def test_a_part_of_the_cloud_that_cannot_be_listed_makes_no_machine_late() -> None:
    observation, pending = an_observation(at=NOW), a_machine("b/1", state=MachineState.PENDING)
    elsewhere = replace(BOOTING, machine_id="b/1")
    partial = PartialList([], complete_for=["a/"], is_whole=False)
    listing = replace(a_listing(began=NOW + 10, follows=NOW), machines=partial)
    assert look(elsewhere, observation, listing, a_looker()) == observation.listed
    observation = listed(elsewhere, observation, pending, at=NOW + 20, follows=NOW + 10)
    assert observation.listed.awaited_for == 0.0


# -- absence -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """One list of a history: when it began, and whether it had the machine."""

    at: float
    has_it: bool


@st.composite
def histories(draw: st.DrawFn) -> Sequence[Look]:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 1, 4, 9, 10, 11, 35]), min_size=1, max_size=14))
    looks, now = [], NOW - 20
    for gap in gaps:
        now += gap
        looks.append(Look(now, draw(st.booleans())))
    return looks


def _is_absent(looks: Sequence[Look], believable: float, delay: float) -> bool:
    """Said once more, plainly: two lists since it was last there, both late enough, and a delay apart."""
    last = max((i for i, one in enumerate(looks) if one.has_it), default=-1)
    late = [one.at for one in looks[last + 1 :] if one.at >= believable]
    return any(b - a >= delay for i, a in enumerate(late) for b in late[i + 1 :])


RECORDS = {
    "running": a_record(state=State.RUNNING, presence=Presence.PRESENT),
    "deleting": a_record(state=State.DELETING, presence=Presence.PRESENT),
    "creating, unknown": a_record(state=State.CREATING, presence=Presence.UNKNOWN, attempt_at=NOW),
    "failed, unknown": a_record(state=State.FAILED, presence=Presence.UNKNOWN, attempt_at=NOW),
}


@given(
    looks=histories(),
    which=st.sampled_from(sorted(RECORDS)),
    delay=st.sampled_from([0, 10]),
    idempotency=st.sampled_from(Idempotency),
)
def test_absence_takes_two_complete_lists_past_the_list_delay(
    looks: Sequence[Look], which: str, delay: int, idempotency: Idempotency
) -> None:
    """Law 5. While an outcome is unknown and a second create would not be safe, past the call's own time too."""
    record, looker = RECORDS[which], a_looker(list_delay=delay, idempotency=idempotency)
    believable = NOW + delay
    if record.presence is Presence.UNKNOWN and (which.startswith("failed") or idempotency is Idempotency.NONE):
        believable += 30  # of CLOUD
    observation = an_observation()
    for index, one in enumerate(looks, 1):
        observation = seen(
            record, *([a_machine()] if one.has_it else []), looker=looker, observation=observation, at=one.at
        )
        assert observation.listed.is_absent == _is_absent(looks[:index], believable, delay)


@given(looks=histories())
def test_lists_that_are_not_complete_prove_no_absence_unless_the_deletion_was_accepted(looks: Sequence[Look]) -> None:
    looker, observation, deleted = a_looker(complete_list=False), an_observation(), an_observation(deletes=1)
    for one in looks:
        machines = [a_machine()] if one.has_it else []
        observation = seen(RUNNING, *machines, looker=looker, observation=observation, at=one.at)
        deleted = seen(RUNNING, *machines, looker=looker, observation=deleted, at=one.at)
        assert not observation.listed.is_absent
    assert deleted.listed.is_absent == _is_absent(looks, NOW - 1000, 0)


def test_a_create_that_ended_later_than_its_limit_is_settled_by_lists_after_its_end() -> None:
    """It waited for its turn before its time began: lists from before its end prove nothing."""
    record, looker = RECORDS["creating, unknown"], a_looker(list_delay=10, idempotency=Idempotency.NONE)
    observation = an_observation(unsettled_at=NOW + 300)
    for at in (NOW + 100, NOW + 200, NOW + 305):
        observation = seen(record, looker=looker, observation=observation, at=at)
        assert observation.listed.absences == 0
    for at in (NOW + 310, NOW + 320):
        observation = seen(record, looker=looker, observation=observation, at=at)
    assert observation.listed.is_absent


def test_evidence_from_before_we_began_to_look_does_not_count() -> None:
    """After a restart a list may show the cloud as it was before."""
    looker, observation = a_looker(list_delay=10), an_observation(since=NOW)
    for at in (NOW, NOW + 5, NOW + 9.9):
        observation = seen(RUNNING, looker=looker, observation=observation, at=at)
        assert observation.listed.absences == 0
    for after, absences in ((10, 1), (19, 1), (20, 2)):
        observation = seen(RUNNING, looker=looker, observation=observation, at=NOW + after)
        assert observation.listed.absences == absences
    assert observation.listed.is_absent


def test_what_is_there_without_our_marks_is_not_absent() -> None:
    observation = an_observation(absences=1, absent_at=NOW - 10)
    observation = seen(RUNNING, a_machine(tags={}), observation=observation)
    assert (observation.listed.absences, observation.listed.is_ours) == (0, False)
    creating = a_record(state=State.CREATING, presence=Presence.UNKNOWN, age=1000)
    for at in range(5):
        observation = seen(creating, a_machine("m-9", tags={}), observation=observation, at=NOW + 10 * at)
    assert (observation.listed.is_absent, observation.listed.machine) == (False, None)
    assert observation.listed.unproven is not None


# -- ownership ---------------------------------------------------------------------------------------------------------


def test_a_machine_is_ours_when_it_shows_our_marks() -> None:
    observation = seen(RUNNING, a_machine())
    listed = observation.listed
    assert (listed.machine, listed.is_ours, listed.unproven) == (
        a_machine(),
        True,
        None,
    )


def test_a_machine_that_lost_its_tags_is_still_followed_by_its_id_but_not_ours_to_delete() -> None:
    bare = a_machine(tags={})
    observation = seen(RUNNING, bare)
    listed = observation.listed
    assert (listed.machine, listed.is_ours, listed.unproven) == (bare, False, bare)


@pytest.mark.parametrize("ownership", list(Ownership))
def test_a_machine_of_our_name_without_proof_is_nothing_but_a_stranger(ownership: Ownership) -> None:
    """Another cluster's machine can have any name and any tags but ours. Its mark counts for more than a name."""
    stranger = a_machine("m-9", tags={"cloudgraft-cluster": "test", "cloudgraft-cluster-id": "zzzzzzzzzz"})
    observation = seen(
        a_record(state=State.CREATING, presence=Presence.UNKNOWN), stranger, looker=a_looker(ownership=ownership)
    )
    listed = observation.listed
    assert (listed.machine, listed.is_ours, listed.unproven) == (
        None,
        False,
        stranger,
    )


def test_the_answer_to_our_own_create_is_proof_until_a_list_could_tell() -> None:
    booting = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    observation = an_observation(is_ours=True)
    observation = seen(booting, observation=observation)
    assert observation.listed.is_ours, "not in the list yet"
    observation = seen(booting, a_machine(), observation=observation)
    assert observation.listed.is_ours
    assert not seen(booting, observation=observation).listed.is_ours, (
        "no longer in the list: its id may be another's by now"
    )
    assert not seen(booting, observation=an_observation()).listed.is_ours, "after a restart there is no answer"


def test_where_lists_are_not_complete_the_journals_id_is_all_the_proof_there_will_be() -> None:
    looker = a_looker(complete_list=False)
    assert seen(RUNNING, looker=looker).listed.is_ours
    assert not seen(RUNNING, a_machine(tags={}), looker=looker).listed.is_ours
    assert not seen(a_record(state=State.FAILED, presence=Presence.UNKNOWN), looker=looker).listed.is_ours


def test_an_id_that_the_cloud_gave_away_again_is_another_machines() -> None:
    """Proxmox, for one, hands out the lowest free number: the machine that has it now is another intent's."""
    deleting = a_record(state=State.DELETING, presence=Presence.PRESENT)
    other = f"{IDENTITY.prefix}g-0a1b2c3d-bbbbbbbb"
    tagged = a_machine(name="anything", tags=IDENTITY.tags(other, "g"))
    for machine in (a_machine(name=other), a_machine(name=other, tags={}), tagged):
        observation = an_observation(is_ours=True, machine=a_machine())
        observation = seen(deleting, machine, observation=observation)
        assert (observation.listed.machine, observation.listed.is_ours, observation.listed.extras) == (None, False, ())


def test_a_machine_that_was_taken_over_is_known_by_its_id_whatever_it_is_called() -> None:
    taken = a_record("theirs", state=State.RUNNING, presence=Presence.PRESENT, is_adopted=True)
    machine = a_machine(name="renamed", tags={})
    observation = seen(taken, machine, a_machine("m-2", name="theirs", tags={}))
    assert (
        observation.listed.machine,
        observation.listed.is_ours,
        observation.listed.extras,
        observation.listed.unproven,
    ) == (
        machine,
        True,
        (),
        None,
    )


TAKEN = a_record("theirs", state=State.RUNNING, presence=Presence.PRESENT, is_adopted=True)


@pytest.mark.parametrize("ownership", list(Ownership))
def test_an_adopted_machine_that_was_away_has_to_prove_itself_again(ownership: Ownership) -> None:
    """Its cloud tells no creation time and keeps no marks: whether it is the same one, nobody but a person can say."""
    machine, looker = a_machine(name="theirs", tags={}, created_at=None), a_looker(ownership=ownership)
    observation = seen(TAKEN, machine, looker=looker)
    assert observation.listed.is_ours
    observation = seen(TAKEN, looker=looker, observation=observation)
    observation = seen(TAKEN, machine, looker=looker, observation=observation)
    listed = observation.listed
    assert (listed.machine, listed.is_ours, listed.unproven) == (
        machine,
        False,
        machine,
    ), "followed, and not touched"
    assert seen(
        replace(TAKEN, created_at=NOW - 60), _aged("m-1", 60, name="theirs", tags={}), observation=observation
    ).listed.is_ours


def test_what_a_cloud_said_was_not_there_has_to_prove_itself_again() -> None:
    machine = a_machine(name="theirs", tags={}, created_at=None)
    observation = seen(TAKEN, machine)
    observation = replace(observation, listed=observation.listed.without("m-1"))
    assert not seen(TAKEN, machine, observation=observation).listed.is_ours


@pytest.mark.parametrize("ownership", list(Ownership))
@pytest.mark.parametrize("is_adopted", [True, False])
def test_a_gone_record_proves_nothing_by_its_id(ownership: Ownership, *, is_adopted: bool) -> None:
    gone = replace(TAKEN if is_adopted else RUNNING, state=State.GONE, presence=Presence.NONE)
    observation = seen(gone, a_machine(name="theirs", tags={}), looker=a_looker(ownership=ownership))
    assert not observation.listed.is_ours
    assert observation.listed.extras == ()


def test_a_machine_of_ours_with_the_id_of_an_adopted_one_is_not_its() -> None:
    """The adopted one is being deleted, its id is free, and the cloud gives it to the next machine of ours."""
    deleting = replace(TAKEN, state=State.DELETING)
    for tags in (IDENTITY.tags(NAME, "g"), {}):
        assert seen(deleting, a_machine(tags=tags), observation=an_observation(is_ours=True)).listed.machine is None


def test_an_adopted_machine_that_no_list_shows_is_not_deleted_by_its_id() -> None:
    assert not seen(TAKEN, looker=a_looker(complete_list=False)).listed.is_ours


@pytest.mark.parametrize("name", ["", "ip-10-0-0-7"])
def test_a_machine_whose_name_is_not_ours_is_followed_after_it_was_taken_in(name: str) -> None:
    """A cloud that keeps no names gives back the tags; under a name of our own choice only the id leads back to it."""
    machine, fleet = a_machine("m-7", name=name, tags=IDENTITY.tags(NAME, "g")), Fleet()
    for taken in ((), {name, NAME}):
        record = found(machine, a_spec(), fleet, NOW, is_adopted=False, taken=taken)
        assert record.name not in taken
        observation = seen(record, machine)
        assert (observation.listed.machine, observation.listed.is_ours) == (machine, True)


# -- doubles -----------------------------------------------------------------------------------------------------------


def _aged(machine_id: str, age: float, **changes: object) -> Machine:
    return replace(a_machine(machine_id), created_at=datetime.fromtimestamp(NOW - age, UTC), **changes)  # type: ignore[arg-type]  # a test names fields of its own choice


def test_of_two_machines_the_older_is_kept_before_it_runs_and_the_known_one_after() -> None:
    """Law 3: the one that joined, else the older."""
    known, older = _aged("m-1", 10), _aged("m-2", 20)
    booting = seen(a_record(state=State.BOOTING, presence=Presence.PRESENT), known, older)
    assert (booting.listed.machine, booting.listed.extras) == (older, (known,))
    running = seen(RUNNING, known, older)
    assert (running.listed.machine, running.listed.extras) == (known, (older,))


def test_a_running_machine_that_lost_its_tags_is_kept_and_its_double_is_the_extra() -> None:
    bare, double = _aged("m-1", 10, tags={}), _aged("m-2", 20)
    observation = seen(RUNNING, bare, double)
    assert (observation.listed.machine, observation.listed.extras, observation.listed.is_ours) == (
        bare,
        (double,),
        False,
    )


@given(
    states=st.lists(st.sampled_from(MachineState), min_size=1, max_size=4),
    marked=st.lists(st.booleans(), min_size=4, max_size=4),
    record=st.sampled_from(sorted(RECORDS)),
)
def test_nothing_is_an_extra_or_ours_without_proof_and_the_kept_one_is_never_an_extra(
    states: list[MachineState], marked: list[bool], record: str
) -> None:
    machines = [
        _aged(f"m-{i}", i, state=state, tags=a_machine().tags if marked[i] else {}) for i, state in enumerate(states)
    ]
    observation = seen(RECORDS[record], *machines)
    assert all(machine.tags for machine in observation.listed.extras)
    assert observation.listed.machine not in observation.listed.extras
    assert observation.listed.is_ours == (
        observation.listed.machine is not None and bool(observation.listed.machine.tags)
    )
    assert all(m in observation.listed.extras or m is observation.listed.machine for m in machines if m.tags)


# -- death -------------------------------------------------------------------------------------------------------------


def test_death_is_counted_from_the_first_list_that_tells_of_it_and_forgotten_with_the_first_that_does_not() -> None:
    observation = an_observation()
    for at, state in enumerate([MachineState.RUNNING, MachineState.FAILED, MachineState.STOPPED]):
        observation = seen(RUNNING, a_machine(state=state), observation=observation, at=NOW + at)
    assert observation.listed.dead_since == NOW + 1
    observation = seen(RUNNING, a_machine(), observation=observation, at=NOW + 3)
    assert observation.listed.dead_since is None


def test_what_the_cloud_denies_is_forgotten_at_once() -> None:
    observation = seen(RUNNING, _aged("m-1", 10), _aged("m-2", 20))
    observation = replace(observation, listed=observation.listed.without("m-2"))
    assert observation.listed.extras == ()
    assert observation.listed.machine is not None
    observation = replace(observation, listed=observation.listed.without("m-1"))
    assert observation == an_observation(machine=None, is_ours=False, was_missing=True)


def test_law_3_marks_outweigh_an_id_that_a_wrong_answer_named() -> None:
    """A driver that answers a create with a stranger's id must not cost the machine that it made."""
    stranger = a_machine("m-9", "database-1", tags={}, created_at=datetime.fromtimestamp(NOW - 9000, UTC))
    own = a_machine("m-1", NAME, tags={})
    record = a_record(state=State.BOOTING, presence=Presence.PRESENT, machine_id="m-9")
    observation = seen(record, stranger, own, looker=a_looker(ownership=Ownership.NAME))
    assert observation.listed.machine == own
    assert observation.listed.extras == ()


@pytest.mark.parametrize(("is_doubted", "counted"), [(True, 0.0), (False, 60.0)])
def test_time_in_lists_that_are_doubted_makes_no_machine_late(is_doubted: bool, counted: float) -> None:
    booting = a_record(state=State.BOOTING, presence=Presence.PRESENT)
    looker, observation = replace(a_looker(), is_doubted=is_doubted), an_observation()
    for began, follows in ((NOW, None), (NOW + 60, NOW)):
        listing = replace(a_listing(began=began), follows=follows)
        observation = replace(observation, listed=look(booting, observation, listing, looker))
    assert observation.listed.awaited_for == counted
