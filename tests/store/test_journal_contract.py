"""What the engine may rely on, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event

from cloudgraft.sdk.errors import ConflictError, InvalidArgumentError
from cloudgraft.store.journal import EventQuery, JournalBrokenError, JournalUnavailableError
from cloudgraft.store.records import (
    Change,
    CloudRecord,
    DeclaredGroup,
    ErrorRecord,
    GroupRecord,
    LearnedRecord,
    MachineRecord,
    PauseRecord,
    Presence,
    Progress,
    RequestRecord,
    Scope,
    State,
)
from cloudgraft.store.rows import seal_all
from cloudgraft.store.schema import machines as machines_table
from cloudgraft.store.sql import SqlJournal
from tests.store.places import Place, change, event, machine, machines

FULL = Change(
    machines=(
        machine("m-1", error=ErrorRecord(code="quota_exceeded", message="no more", error_class=1), is_adopted=True),
        machine(
            "m-2",
            state=State.REQUESTED,
            presence=Presence.NONE,
            settings={},
            tags={},
            hourly=None,
            currency="",
            ordered_at=None,
            replaces="m-1",
        ),
    ),
    groups=(GroupRecord(id="small", cloud="lab", spec={"minSize": 0, "labels": {"pool": "läb"}}),),
    learned=(LearnedRecord(group="small", settings={"shape": "s"}, since=7.5, facts={"labels": {"zone": "z"}}),),
    clouds=(CloudRecord(name="lab", adopted_at=1_700_000_000.5),),
    pauses=(PauseRecord(scope=Scope.GROUP, name="small", since=5.25, reason="work on the roof"),),
    events=(event(machine="m-1", state=State.RUNNING, data={"a": [1, {"b": None}]}),),
    requests=(RequestRecord(caller="front", key="k", fingerprint="f", answer={"targetSize": 2}, at=9e5),),
    declared=(DeclaredGroup(id="extra", document={"id": "extra", "maxSize": 3}, revision=1),),
)


async def test_a_new_journal_is_empty_and_has_an_identity(journal: SqlJournal) -> None:
    contents = await journal.load()
    assert re.fullmatch("[a-z2-7]{10}", contents.cluster_id)
    assert (contents.machines, contents.groups, contents.clouds, contents.pauses) == ([], [], [], [])
    assert await journal.events(EventQuery()) == []


async def test_what_was_written_is_found_again_by_whoever_opens_it_next(place: Place) -> None:
    journal = await place.opened()
    await journal.write(FULL)
    before = await journal.load()
    await place.let_go()
    again = await place.opened()
    contents = await again.load()
    assert contents == before
    assert list(contents.machines) == list(FULL.machines)
    assert list(contents.groups) == list(FULL.groups)
    assert list(contents.learned) == list(FULL.learned)
    assert list(contents.clouds) == list(FULL.clouds)
    assert list(contents.pauses) == list(FULL.pauses)
    assert list(contents.requests) == list(FULL.requests)
    assert list(contents.declared) == list(FULL.declared)
    (found,) = await again.events(EventQuery())
    assert replace(found, seq=0) == FULL.events[0]
    assert found.seq > 0


async def test_a_request_is_kept_for_a_day_and_a_declared_group_until_it_is_taken_back(journal: SqlJournal) -> None:
    await journal.write(FULL)
    (first,) = FULL.requests
    late = replace(first, key="late", at=first.at + 80_000)
    await journal.write(Change(requests=[late], declared=[replace(FULL.declared[0], revision=2)]))
    contents = await journal.load()
    assert list(contents.requests) == [first, late]
    assert [group.revision for group in contents.declared] == [2]
    latest = replace(first, key="latest", at=first.at + 90_000)
    await journal.write(Change(requests=[latest], removed_requests=[("front", "late")], undeclared=["extra"]))
    contents = await journal.load()
    assert (list(contents.requests), list(contents.declared)) == ([latest], [])


async def test_the_newest_progress_replaces_the_one_before(journal: SqlJournal) -> None:
    assert (await journal.load()).progress is None
    for number in (1.0, 2.0):
        await journal.write(Change(progress=Progress(at=100.0 * number, boot_id="b", boot_time=number)))
    assert (await journal.load()).progress == Progress(at=200.0, boot_id="b", boot_time=2.0)


async def test_the_latest_time_comes_from_any_record_or_event(journal: SqlJournal) -> None:
    assert (await journal.load()).latest_at == 0.0
    await journal.write(Change(events=[event(at=50.0), event(at=40.0)]))
    assert (await journal.load()).latest_at == 50.0
    await journal.write(Change(clouds=[CloudRecord(name="lab", adopted_at=60.0)]))
    assert (await journal.load()).latest_at == 60.0
    await journal.write(Change(progress=Progress(at=70.0, boot_id="b", boot_time=1.0)))
    assert (await journal.load()).latest_at == 70.0


async def test_a_damaged_event_does_not_send_the_clock_astray(journal: SqlJournal) -> None:
    await journal.write(Change(events=[event(at=50.0), event(at=40.0)]))
    with journal._database.transaction() as connection:
        connection.exec_driver_sql("UPDATE events SET at = 9e99 WHERE at = 40.0")
    assert (await journal.load()).latest_at == 50.0
    with pytest.raises(JournalBrokenError, match="events 2: the row does not match its checksum"):
        await journal.events(EventQuery())


async def test_what_was_learned_of_a_group_goes_with_the_group(journal: SqlJournal) -> None:
    await journal.write(FULL)
    again = replace(FULL.learned[0], since=8.5)
    await journal.write(Change(learned=[again, replace(again, group="large")]))
    await journal.write(Change(removed_groups=["large"]))
    assert list((await journal.load()).learned) == [again]
    await journal.write(Change(removed_groups=["small"]))
    assert (await journal.load()).learned == []


async def test_a_given_cluster_id_is_kept_and_another_one_later_is_refused(place: Place) -> None:
    """Law 4: machines that carry the old id would be lost from sight."""
    journal = await place.opened(cluster_id="own-id-1")
    assert (await journal.load()).cluster_id == "own-id-1"
    await journal.write(change(machine("m-1")))
    await place.let_go()
    with pytest.raises(JournalBrokenError, match=r"own-id-1.*another-id"):
        await place.journal(cluster_id="another-id").open()
    again = await place.opened()
    assert (await again.load()).cluster_id == "own-id-1"


async def test_a_journal_without_machines_takes_the_cluster_id_that_is_given_later(place: Place) -> None:
    """Law 11: when both are lost, a new id is generated before anybody can say which it was."""
    journal = await place.opened()
    generated = await journal.load()
    assert generated.is_id_new
    await journal.write(Change(clouds=[CloudRecord(name="lab", adopted_at=1.0)], groups=FULL.groups))
    await place.let_go()
    given = await (await place.opened(cluster_id="own-id-1")).load()
    assert (given.cluster_id, given.is_id_new) == ("own-id-1", False)
    assert list(given.groups) == list(FULL.groups)
    assert not given.clouds  # they are listed again before anything is created there
    await place.let_go()
    assert (await (await place.opened()).load()).cluster_id == "own-id-1"


@pytest.mark.parametrize("wrong", ["Upper", "-a", "a b", "x" * 64, "a\n"])
def test_a_cluster_id_that_no_cloud_would_take_as_a_tag_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no cluster id"):
        SqlJournal.sqlite(tmp_path / "journal.db", cluster_id=wrong)


async def test_a_record_is_replaced_by_its_name(journal: SqlJournal) -> None:
    await journal.write(FULL)
    changed = replace(FULL.machines[0], state=State.DELETING, error=None, version=2)
    group = replace(FULL.groups[0], spec={"minSize": 3}, configured=False)
    pause = replace(FULL.pauses[0], reason="another")
    cloud = replace(FULL.clouds[0], adopted_at=9.0)
    await journal.write(Change(machines=[changed], groups=[group], pauses=[pause], clouds=[cloud]))
    contents = await journal.load()
    assert list(contents.machines) == [changed, FULL.machines[1]]
    assert (list(contents.groups), list(contents.pauses), list(contents.clouds)) == ([group], [pause], [cloud])


async def test_groups_are_removed_and_pauses_ended_by_name(journal: SqlJournal) -> None:
    other = PauseRecord(scope=Scope.CLOUD, name="small", since=1.0)
    await journal.write(replace(FULL, pauses=(*FULL.pauses, other)))
    await journal.write(Change(removed_groups=["small", "never-was"], resumed=[(Scope.GROUP, "small")]))
    contents = await journal.load()
    assert (list(contents.groups), list(contents.pauses)) == ([], [other])


_CONFLICTS = (
    machine("m-1", version=1),  # it is not new
    machine("m-1", version=2),  # that is the one stored
    machine("m-1", version=4),  # there is one between
    machine("m-9", version=2),  # it is new
    machine("m-9", version=0),
)


async def test_a_machine_written_by_somebody_else_is_a_conflict_and_nothing_is_written(journal: SqlJournal) -> None:
    await journal.write(change(machine("m-1"), machine("m-2")))
    await journal.write(change(machine("m-1", version=2)))
    before = await journal.load()
    for wrong in _CONFLICTS:
        everything = replace(FULL, machines=[machine("m-0"), machine("m-2", version=2), wrong, machine("m-3")])
        with pytest.raises(ConflictError, match=rf"other versions of some machines: {wrong.name} \(version"):
            await journal.write(everything)
        assert await journal.load() == before
        assert await journal.events(EventQuery()) == []
    await journal.write(change(machine("m-1", version=3)))  # and it is usable as before


async def test_a_machine_may_be_written_twice_in_one_change(journal: SqlJournal) -> None:
    await journal.write(change(machine("m-1"), machine("m-1", version=2, attempts=7)))
    (found,) = (await journal.load()).machines
    assert (found.version, found.attempts) == (2, 7)


async def test_a_hundred_machines_are_one_transaction_with_a_statement_per_table(journal: SqlJournal) -> None:
    """IncreaseSize(+100) answers after one commit, not a hundred."""
    await journal.write(change(*machines(100, prefix="old")))
    with _counting(journal) as counts:
        await journal.write(
            Change(machines=[*machines(100), *machines(100, prefix="old", version=2)], events=[event()] * 200)
        )
    assert counts["commit"] == 1
    assert counts["statement"] <= 4  # new machines, known machines, events; on PostgreSQL the lease as well
    assert len((await journal.load()).machines) == 200


async def test_events_are_the_newest_that_fit_and_the_oldest_of_them_comes_first(journal: SqlJournal) -> None:
    told = [event(f"kind-{number % 3}", at=float(number), group=f"g-{number % 2}") for number in range(20)]
    await journal.write(Change(events=told[:12]))
    await journal.write(Change(events=told[12:]))

    async def times(query: EventQuery) -> list[float]:
        return [found.at for found in await journal.events(query)]

    assert await times(EventQuery()) == [float(number) for number in range(20)]
    assert await times(EventQuery(limit=3)) == [17.0, 18.0, 19.0]
    assert await times(EventQuery(group="g-1", limit=3)) == [15.0, 17.0, 19.0]
    assert await times(EventQuery(kinds=["kind-0", "kind-1"], limit=4)) == [15.0, 16.0, 18.0, 19.0]
    assert await times(EventQuery(since=18.0)) == [18.0, 19.0]
    assert await times(EventQuery(group="g-0", kinds=["kind-0"], since=7.0)) == [12.0, 18.0]
    numbers = [found.seq for found in await journal.events(EventQuery())]
    assert numbers == sorted(set(numbers))
    assert await times(EventQuery(after=numbers[3], limit=3)) == [4.0, 5.0, 6.0]
    assert await times(EventQuery(after=numbers[3], before=numbers[8], group="g-1")) == [5.0, 7.0]
    assert await times(EventQuery(after=numbers[-1])) == []


async def test_a_machines_history_is_its_events_with_a_state(journal: SqlJournal) -> None:
    await journal.write(
        Change(
            events=[
                event("ordered", machine="m-1", cloud="lab", state=State.CREATING),
                event("ordered", machine="m-2", cloud="attic", state=State.CREATING),
                event("retried", machine="m-1", cloud="lab"),
                event("came", machine="m-1", cloud="lab", state=State.RUNNING),
            ]
        )
    )
    history = await journal.events(EventQuery(machine="m-1", only_states=True))
    assert [found.state for found in history] == [State.CREATING, State.RUNNING]
    assert [found.machine for found in await journal.events(EventQuery(cloud="attic"))] == ["m-2"]


async def test_only_what_is_old_is_purged_and_in_slices(journal: SqlJournal) -> None:
    gone = [
        machine(f"gone-{number}", state=State.GONE, presence=Presence.NONE, gone_at=float(number))
        for number in range(5)
    ]
    await journal.write(Change(machines=[*gone, machine("alive")], events=[event(at=float(n)) for n in range(7)]))
    assert await journal.purge(gone_before=3.0, events_before=5.0, limit=2) == 4
    assert await journal.purge(gone_before=3.0, events_before=5.0, limit=2) == 3
    assert await journal.purge(gone_before=3.0, events_before=5.0, limit=2) == 1
    assert await journal.purge(gone_before=3.0, events_before=5.0, limit=2) == 0
    assert [found.name for found in (await journal.load()).machines] == ["alive", "gone-3", "gone-4"]
    assert [found.at for found in await journal.events(EventQuery())] == [5.0, 6.0]


async def test_the_number_of_an_event_is_never_given_again(journal: SqlJournal) -> None:
    await journal.write(Change(events=[event()] * 3))
    last = (await journal.events(EventQuery()))[-1].seq
    await journal.purge(gone_before=0.0, events_before=9e9)
    await journal.write(Change(events=[event()]))
    assert (await journal.events(EventQuery()))[0].seq > last


async def test_what_a_cloud_says_is_stored_whatever_characters_are_in_it(journal: SqlJournal) -> None:
    dirty = "quota\0 of \ud800 machines"
    error = ErrorRecord(code=dirty, message=dirty, error_class=99)
    await journal.write(
        Change(machines=[machine("m-1", error=error)], events=[event(message=dirty, data={"cause": dirty})])
    )
    (found,) = (await journal.load()).machines
    assert found.error == ErrorRecord(
        code="quota\ufffd of ? machines", message="quota\ufffd of ? machines", error_class=99
    )
    (told,) = await journal.events(EventQuery())
    assert (told.message, told.data) == ("quota\ufffd of ? machines", {"cause": dirty})


async def test_a_name_that_cannot_be_stored_as_it_is_is_refused(journal: SqlJournal) -> None:
    """To store another name in its place would be to name another machine."""
    for field in ("name", "machine_id", "provider_id", "group"):
        with pytest.raises(InvalidArgumentError, match="cannot be stored"):
            await journal.write(change(machine("m-0"), _spoiled(field)))
    assert (await journal.load()).machines == []


async def test_data_that_json_has_no_word_for_does_not_keep_a_change_from_being_written(journal: SqlJournal) -> None:
    await journal.write(Change(events=[event(data={"state": State.GONE, "set": {1}, "at": 1j, "raw": b"x"})]))
    (found,) = await journal.events(EventQuery())
    assert found.data == {"state": "gone", "set": [1], "at": "1j", "raw": "b'x'"}


async def test_an_empty_change_is_fine(journal: SqlJournal) -> None:
    await journal.write(Change())
    assert (await journal.load()).machines == []


async def test_changes_are_written_in_the_order_in_which_they_were_asked_for(journal: SqlJournal) -> None:
    await asyncio.gather(*(journal.write(change(machine("m-1", version=number))) for number in range(1, 30)))
    assert [found.version for found in (await journal.load()).machines] == [29]


async def test_a_load_shows_a_write_whose_caller_gave_up_after_it_had_begun(journal: SqlJournal) -> None:
    """After an unknown outcome, reading the journal again settles it."""
    writing = asyncio.ensure_future(journal.write(change(*machines(300))))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    first = len((await journal.load()).machines)
    assert first in {0, 300}
    assert len((await journal.load()).machines) == first


async def test_a_journal_may_be_closed_twice_and_without_being_open_and_opened_again(place: Place) -> None:
    journal = place.journal()
    await journal.close()
    await journal.open()
    await journal.open()
    await journal.close()
    await journal.close()
    with pytest.raises(JournalUnavailableError, match="not open"):
        await journal.load()
    with pytest.raises(JournalUnavailableError, match="not open"):
        await journal.write(Change())
    await journal.open()
    assert (await journal.load()).machines == []


async def test_rows_that_cannot_be_read_are_told_by_name(journal: SqlJournal, place: Place) -> None:
    await journal.write(change(machine("m-1")))
    with journal._database.transaction() as connection:
        connection.exec_driver_sql("UPDATE machines SET state = 'asleep'")
    with pytest.raises(JournalBrokenError, match=r"machines m-1: .*its checksum.*cloudgraft db repair"):
        await journal.load()
    with journal._database.transaction() as connection:
        seal_all(connection, machines_table)
    with pytest.raises(JournalBrokenError, match=r"m-1.*asleep.*cloudgraft db check"):
        await journal.load()


def _spoiled(field: str) -> MachineRecord:
    values: dict[str, Any] = {"name": "m-1", field: "a\0b"}
    return machine(**values)


@contextmanager
def _counting(journal: SqlJournal) -> Iterator[dict[str, int]]:
    """Counts what the journal's connection is asked to do."""
    engine, counts = journal._database.engine, {"commit": 0, "statement": 0}

    def committed(*_: object) -> None:
        counts["commit"] += 1

    def executed(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        counts["statement"] += not statement.startswith("BEGIN")

    sqlalchemy_event.listen(engine, "commit", committed)
    sqlalchemy_event.listen(engine, "before_cursor_execute", executed)
    yield counts
    sqlalchemy_event.remove(engine, "commit", committed)
    sqlalchemy_event.remove(engine, "before_cursor_execute", executed)
