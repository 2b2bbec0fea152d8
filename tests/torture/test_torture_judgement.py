"""What the judge concludes from lists and journals; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import DriverTraits, Idempotency, Machine, MachineState, Ownership, PartialList
from cloudgraft.store.records import Event, MachineRecord, Presence, State
from cloudgraft.torture.journal_view import JournalView
from cloudgraft.torture.judge import Finding, Judge, Listing, Rule, is_ours, why_not_at_rest

US = Identity("torture-abcd", "aaaaaaaaaa")
NAME = US.new_name("g")
STRANGER = Machine(name="db-1", machine_id="i-0", tags={"owner": "me"})


def machine(ident: str = "i-1", name: str = NAME, **more: Any) -> Machine:
    return Machine(**{"name": name, "machine_id": ident, "tags": US.tags(name, "g"), **more})


def record(state: State = State.RUNNING, ident: str = "i-1", **more: Any) -> MachineRecord:
    presence = Presence.PRESENT if state in (State.BOOTING, State.RUNNING, State.DELETING) else Presence.NONE
    return MachineRecord(
        **{
            "name": NAME,
            "group": "g",
            "cloud": "c",
            "placeholder": "p",
            "state": state,
            "presence": presence,
            "requested_at": 0.0,
            "state_since": 0.0,
            "machine_id": ident,
            "attempts": 1,
            **more,
        }
    )


def event(kind: str, seq: int = 1, **more: Any) -> Event:
    return Event(**{"at": 0.0, "kind": kind, "message": "a reason", "machine": NAME, "seq": seq, **more})


def refused(seq: int = 1, at: float = 0.0) -> Event:
    return event("retry", seq, at=at, message="it will be tried again: the cloud answered 503", data={"call": "create"})


class Trial:
    """A judge, with lists one second apart."""

    def __init__(self, foreign: Sequence[Machine] = (), **traits: Any) -> None:
        self.judge = Judge(US, DriverTraits(**traits), {one.machine_id: one for one in foreign})
        self._now = 100.0

    def see(self, listed: Sequence[Machine], *records: MachineRecord, events: Sequence[Event] = ()) -> list[Finding]:
        self._now += 1
        journal = JournalView(machines={one.name: one for one in records}, events=events)
        return self.judge.see(Listing(began=self._now, machines=listed), journal, self._now + 0.5)

    def rules(self, listed: Sequence[Machine], *records: MachineRecord, events: Sequence[Event] = ()) -> set[Rule]:
        return {one.rule for one in self.see(listed, *records, events=events) if not one.is_note}


def test_what_the_journal_has_is_fine() -> None:
    trial = Trial([STRANGER])
    for _ in range(5):
        assert trial.see([machine(), STRANGER], record()) == []


def test_a_machine_that_no_journal_knows_is_found_once() -> None:
    trial = Trial()
    assert trial.rules([machine()]) == {Rule.UNKNOWN}
    assert trial.rules([machine()]) == set()


def test_a_machine_that_was_never_asked_for_is_found() -> None:
    assert Trial().rules([machine()], record(State.REQUESTED, "")) == {Rule.UNKNOWN}


def test_a_double_is_a_violation_where_create_is_idempotent() -> None:
    both = [machine(), machine("i-2")]
    assert Trial(idempotency=Idempotency.TOKEN).rules(both, record()) == {Rule.DOUBLE}


def test_a_double_is_found_though_one_was_deleted_before_the_other_was_seen() -> None:
    trial = Trial(idempotency=Idempotency.UNIQUE_NAME)
    assert trial.rules([machine()], record()) == set()
    assert trial.rules([machine("i-2")], record(ident="i-2")) == {Rule.DOUBLE}


def test_a_double_is_a_note_where_create_is_not_idempotent() -> None:
    (found,) = Trial().see([machine(), machine("i-2")], record())
    assert (found.rule, found.is_note) == (Rule.DOUBLE, True)


def test_a_double_after_an_error_that_promised_nothing_is_a_violation() -> None:
    assert Trial().rules([machine(), machine("i-2")], record(attempts=2), events=[refused()]) == {Rule.DOUBLE}


def test_a_double_is_found_though_no_list_ever_showed_the_first() -> None:
    trial = Trial(list_delay=timedelta(seconds=2))
    assert trial.rules([], record(State.BOOTING, "i-2", attempts=2), events=[refused()]) == set()
    # It was deleted before a list showed it; the machine of the refused call is listed later.
    assert trial.rules([machine("i-1")], record(State.GONE, "i-2", attempts=2), events=[refused()]) == {Rule.DOUBLE}


def test_a_double_from_a_call_of_unknown_outcome_is_a_note_though_another_call_was_refused() -> None:
    both = [machine(), machine("i-2")]
    (found,) = Trial().see(both, record(attempts=3), events=[refused()])
    assert (found.rule, found.is_note) == (Rule.DOUBLE, True)


def test_a_broken_promise_that_nothing_was_done_is_found_without_a_double() -> None:
    assert Trial().rules([machine()], record(), events=[refused()]) == {Rule.REFUSED}
    assert Trial().rules([machine()], record(attempts=2), events=[refused()]) == set()
    assert Trial().rules([machine()], record(attempts=2), events=[refused(1), refused(2)]) == {Rule.REFUSED}
    assert Trial(idempotency=Idempotency.TOKEN).rules([machine()], record(), events=[refused()]) == set()


def test_a_promise_about_a_machine_that_was_no_longer_wanted_is_judged_too() -> None:
    def rules(gone_at: float, **more: Any) -> set[Rule]:
        gone = record(State.GONE, "", attempt_at=50.0, state_since=gone_at, **more)
        events = [refused(at=51.0)] if more else []
        return Trial(list_delay=timedelta(seconds=2)).rules([machine()], gone, events=events)

    assert rules(51.0) == {Rule.REFUSED}  # no list can have shown so soon that it does not exist
    assert rules(52.5) == set()  # lists have: the cloud made it later
    assert rules(51.5, attempts=2) == set()  # its one refusal counts once: the other call may have made it


def test_an_error_of_a_delete_promises_nothing() -> None:
    message = "it could not be deleted and will be tried again: busy"
    failed = event("retry", 2, message=message, data={"call": "delete"})
    events = [event("state", 1, state=State.DELETING), failed]
    assert Trial().rules([machine()], record(State.DELETING), events=events) == set()
    # Nor does that of a delete of a second machine.
    assert Trial().rules([machine()], record(), events=[failed]) == set()


def test_a_machine_that_was_not_asked_for_yet_was_not_refused() -> None:
    """Its user data could not be made: the cloud was not called, so nothing was promised about a call."""
    unsent = event("retry", message="it will be tried again: its user data could not be made: no token")
    assert Trial().rules([machine()], record(), events=[unsent]) == set()


def test_a_list_may_be_as_late_as_declared_and_no_later() -> None:
    trial = Trial(list_delay=timedelta(seconds=2))
    assert trial.rules([], record()) == set()  # known from now on
    assert trial.rules([], record()) == set()
    assert trial.rules([], record()) == set()
    assert trial.rules([], record()) == {Rule.MISSING}


def test_a_machine_that_is_deleted_meanwhile_may_be_missing() -> None:
    trial = Trial()
    trial.see([machine()], record())
    assert trial.rules([], record(State.DELETING)) == set()


def test_a_deletion_must_not_take_for_ever() -> None:
    trial = Trial()
    trial.judge.patience = 2.0
    for _ in range(3):
        assert trial.rules([machine()], record(State.DELETING)) == set()
    assert trial.rules([machine(state=MachineState.DELETING)], record(State.DELETING)) == set()
    assert trial.rules([machine()], record(State.DELETING)) == {Rule.DELETED}


def test_a_partial_list_is_not_blamed_for_what_it_does_not_cover() -> None:
    trial = Trial()
    trial.see([machine()], record())
    assert trial.rules(PartialList([], complete_for=["other"], is_whole=False), record()) == set()


def test_a_machine_that_was_there_and_counts_as_gone_must_not_come_back() -> None:
    trial = Trial()
    trial.see([machine()], record())
    trial.see([], record(State.GONE))
    assert trial.rules([machine()], record(State.GONE)) == {Rule.RETURNED}


def test_a_create_that_comes_late_is_left_to_the_engine() -> None:
    trial = Trial()
    trial.see([], record(State.GONE, ""))
    events = [event("returned")]
    assert trial.rules([machine()], record(State.GONE, ""), events=events) == set()


def test_lost_tags_are_found_by_name_and_by_id() -> None:
    changes: list[dict[str, Any]] = [{"tags": {}}, {"tags": {}, "name": "vm-1"}]
    for changed in changes:
        trial = Trial()
        trial.see([machine(**changed)], record())
        assert trial.rules([machine(**changed)], record()) == {Rule.MARKS}


def test_a_lost_name_is_found_where_names_are_the_proof() -> None:
    trial = Trial(ownership=Ownership.NAME)
    trial.see([machine(name="vm-1")], record())
    assert trial.rules([machine(name="vm-1")], record()) == {Rule.MARKS}


def test_machines_of_others_must_stay_as_they_are() -> None:
    trial = Trial([STRANGER])
    assert trial.rules([]) == set()  # one list may be wrong
    assert trial.rules([]) == {Rule.FOREIGN}
    assert Trial([STRANGER]).rules([replace(STRANGER, tags={})]) == {Rule.FOREIGN}


def test_a_loss_in_the_journal_is_reported() -> None:
    assert Trial().rules([], record(State.GONE), events=[event("loss")]) == {Rule.MISSING}


def test_rest_needs_the_same_machines_and_nothing_open() -> None:
    def why(listed: Sequence[Machine], *records: MachineRecord) -> str:
        journal = JournalView(machines={one.name: one for one in records})
        return why_not_at_rest(Listing(began=0.0, machines=listed), journal, US)

    assert why([machine(), STRANGER], record()) == ""
    assert why([machine(state=MachineState.DELETING)], record(State.GONE)) == ""
    assert "only the cloud has" in why([machine("i-2"), machine()], record())
    assert "only the server has" in why([], record())
    assert "is creating" in why([], record(State.CREATING, ""))


def test_only_the_marks_of_this_run_make_a_machine_ours() -> None:
    other = Identity("torture-abcd", "bbbbbbbbbb")
    assert is_ours(machine(), US)
    assert is_ours(machine(tags={}), US)  # the name has the id, too
    assert not is_ours(machine(tags=other.tags(NAME, "g")), US)
    assert not is_ours(STRANGER, US)
