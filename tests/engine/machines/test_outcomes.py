"""What the end of a call means, for every error and every state: the table of errors is the whole truth."""

from __future__ import annotations

import itertools

import pytest

from cloudgraft.engine.machines.decide import Move
from cloudgraft.engine.machines.outcomes import (
    Created,
    CreateFailed,
    Deleted,
    DeleteFailed,
    Outcome,
    after,
    check_created,
)
from cloudgraft.engine.machines.states import TRANSITIONS
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    InternalError,
    NotFoundError,
    Retry,
    error_table,
)
from cloudgraft.store.records import MachineRecord, Presence, State
from tests.engine.makers import NOW, a_machine, a_record

ERRORS = list(error_table())
# A call to create may be under way in these; what else happened to the record meanwhile, happened.
OPEN = [(State.CREATING, Presence.UNKNOWN), (State.FAILED, Presence.UNKNOWN), (State.DELETING, Presence.UNKNOWN)]


def _moved(record: MachineRecord, made: Move | None) -> MachineRecord:
    assert made is not None
    assert made.record.version == record.version + 1
    assert made.cause
    assert made.record.state is record.state or (record.state, made.record.state) in TRANSITIONS
    return made.record


@pytest.mark.parametrize(("state", "presence"), list(itertools.product(State, Presence)))
def test_no_outcome_ever_raises_or_makes_an_illegal_step(state: State, presence: Presence) -> None:
    record = a_record(state=state, presence=presence)
    outcomes: list[Outcome] = [Created(a_machine()), Deleted("m-1"), Deleted("m-2")]
    for error, machine_id in itertools.product(ERRORS, ("m-1", "m-2")):
        outcomes += [CreateFailed(error("no")), DeleteFailed(machine_id, error("no"))]
    for outcome in outcomes:
        made = after(record, outcome, NOW)
        if made is not None:
            _moved(record, made)


@pytest.mark.parametrize(("state", "presence"), OPEN)
def test_a_created_machine_is_never_lost_whatever_became_of_its_record(state: State, presence: Presence) -> None:
    record = a_record(state=state, presence=presence)
    new = _moved(record, after(record, Created(a_machine("m-7")), NOW))
    assert (new.presence, new.machine_id, new.provider_id) == (Presence.PRESENT, "m-7", "sim://m-7")
    assert new.state is (State.BOOTING if state is State.CREATING else state)


def test_a_list_may_have_been_quicker_than_the_answer() -> None:
    for state in (State.BOOTING, State.RUNNING, State.DELETING):
        assert after(a_record(state=state, presence=Presence.PRESENT), Created(a_machine("m-7")), NOW) is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.slug)
@pytest.mark.parametrize(("state", "presence"), OPEN)
def test_only_an_error_that_says_so_settles_that_nothing_was_made(
    state: State, presence: Presence, error: type[CloudgraftError]
) -> None:
    record = a_record(state=state, presence=presence)
    made = after(record, CreateFailed(error("because")), NOW)
    if not error.nothing_done:
        assert made is None, "the outcome is as open as before"
        return
    new = _moved(record, made)
    assert new.presence is Presence.NONE
    if state is State.CREATING and error.retry is Retry.NO:
        assert new.state is State.FAILED
        assert new.error is not None
        # R35: the class and the code are the error's own.
        assert (new.error.code, new.error.error_class) == (error.slug, error.error_class)
        assert new.error.message == "because"
    else:
        assert new.state is state


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.slug)
@pytest.mark.parametrize(("state", "presence"), OPEN)
def test_a_final_error_fails_the_machine_and_leaves_its_presence_open(
    state: State, presence: Presence, error: type[CloudgraftError]
) -> None:
    """Law 7: the autoscaler sees it at once. Law 3: only lists show whether the cloud has made it."""
    record = a_record(state=state, presence=presence)
    made = after(record, CreateFailed(error("because").as_final()), NOW)
    if state is not State.CREATING or error is AlreadyExistsError:
        assert made is None
        return
    new = _moved(record, made)
    assert (new.state, new.presence) == (State.FAILED, Presence.UNKNOWN)
    assert new.error is not None
    assert (new.error.code, new.error.error_class, new.error.message) == (error.slug, error.error_class, "because")


def test_not_found_ends_a_deletion_but_only_of_the_machine_that_was_meant() -> None:
    record = a_record(state=State.DELETING, presence=Presence.PRESENT)
    new = _moved(record, after(record, DeleteFailed("m-1", NotFoundError("what?")), NOW))
    assert (new.state, new.presence, new.gone_at) == (State.GONE, Presence.NONE, NOW)
    assert after(record, DeleteFailed("m-2", NotFoundError("what?")), NOW) is None
    failed = a_record(state=State.FAILED, presence=Presence.PRESENT)
    new = _moved(failed, after(failed, DeleteFailed("m-1", NotFoundError("what?")), NOW))
    assert (new.state, new.presence) == (State.FAILED, Presence.NONE)


def test_an_accepted_deletion_is_not_yet_the_end() -> None:
    """A cloud may ignore it: only a list tells."""
    assert after(a_record(state=State.DELETING, presence=Presence.PRESENT), Deleted("m-1"), NOW) is None


@pytest.mark.parametrize("error", [e for e in ERRORS if e is not NotFoundError], ids=lambda error: error.slug)
def test_no_other_error_ends_a_deletion(error: type[CloudgraftError]) -> None:
    record = a_record(state=State.DELETING, presence=Presence.PRESENT)
    assert after(record, DeleteFailed("m-1", error("no")), NOW) is None


@pytest.mark.parametrize("answer", [None, "m-1", {}, a_machine(""), a_machine(machine_id=7)], ids=repr)  # type: ignore[arg-type]  # that is the point
def test_an_answer_that_makes_no_sense_leaves_the_outcome_open(answer: object) -> None:
    with pytest.raises(InternalError, match="create\\(\\) of m did not answer") as raised:
        check_created(answer, "m")
    assert raised.value.retry is Retry.SETTLE_FIRST
