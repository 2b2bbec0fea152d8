"""Export and import: a journal goes from one database to the other and back, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.store.databases.database import Database, Mode
from cloudgraft.store.identity import Configured
from cloudgraft.store.journal import EventQuery, JournalBrokenError, JournalLockedError
from cloudgraft.store.maintenance.transfer import export_lines, import_lines
from cloudgraft.store.records import (
    Change,
    CloudRecord,
    GroupRecord,
    LearnedRecord,
    PauseRecord,
    Presence,
    Scope,
    State,
)
from cloudgraft.store.schema import HEAD
from cloudgraft.store.sql import SqlJournal
from tests.store.places import Place, PostgresPlace, SqlitePlace, event, machine, machines, renewed


async def _fill(journal: SqlJournal) -> None:
    await journal.write(
        Change(
            machines=[*machines(1500), machine("gone", state=State.GONE, presence=Presence.NONE, gone_at=5.0)],
            groups=[GroupRecord(id="small", cloud="lab", spec={"maxSize": 3}, configured=False)],
            learned=[LearnedRecord(group="small", settings={"shape": "s"}, since=1.5, facts={"labels": {"a": "b"}})],
            clouds=[CloudRecord(name="lab", adopted_at=1.0)],
            pauses=[PauseRecord(scope=Scope.CLOUD, name="lab", since=2.0, reason="roof")],
            events=[event(machine=f"m-{number}", at=float(number), data={"n": number}) for number in range(2500)],
        )
    )
    await journal.write(Change(machines=[machine("m-0000", version=2, attempts=3)]))
    await journal.purge(gone_before=0.0, events_before=1000.0)


def _exported(place: Place) -> list[str]:
    database = place.database()
    try:
        return list(export_lines(database))
    finally:
        database.close()


def _imported(place: Place, lines: list[str], configured: Configured | None = None) -> int:
    database = place.database()
    try:
        return import_lines(database, lines, configured)
    finally:
        database.close()


async def test_a_journal_moves_to_the_other_database_and_back(
    sqlite_place: SqlitePlace, postgres_place: PostgresPlace, tmp_path: Path
) -> None:
    source = await sqlite_place.opened()
    await _fill(source)
    before, told = await source.load(), await source.events(EventQuery(limit=9999))
    lines = _exported(sqlite_place)  # while it is in use
    assert len(told) == 1500
    assert _imported(postgres_place, lines) == len(lines) - 2
    there = await postgres_place.opened()
    assert await there.load() == before
    assert await there.events(EventQuery(limit=9999)) == told
    await there.write(Change(events=[event()]))  # numbers go on where they were
    assert (await there.events(EventQuery(limit=1)))[0].seq == told[-1].seq + 1
    back = SqlitePlace(tmp_path / "back.db")
    _imported(back, [*_exported(postgres_place)[:-2], _end(len(lines) - 2)])  # without that last event
    again = await back.opened()
    assert await again.load() == before
    assert await again.events(EventQuery(limit=9999)) == told
    await again.write(Change(machines=[machine("m-0000", version=3)], events=[event()]))
    await back.let_go()
    assert (tmp_path / "back.db.cluster-id").read_text().strip() == before.cluster_id


@pytest.mark.thorough
async def test_an_export_is_the_same_from_both_databases(
    sqlite_place: SqlitePlace, postgres_place: PostgresPlace
) -> None:
    for place in (sqlite_place, postgres_place):
        journal = await place.opened(cluster_id="same-id")
        await _fill(journal)
    assert _exported(sqlite_place) == _exported(postgres_place)


async def test_a_journal_that_is_not_empty_is_not_imported_into(place: Place) -> None:
    journal = await place.opened()
    lines = _exported(place)
    await journal.write(Change(events=[event()]))
    await place.let_go()
    with pytest.raises(PreconditionError, match=r"is not empty \(it has events\)"):
        _imported(place, lines)


async def test_an_empty_journal_takes_on_another_identity_by_an_explicit_word_only(place: Place) -> None:
    await place.opened(cluster_id="first-id")
    lines = [line.replace("first-id", "second-id") for line in _exported(place)]
    await place.let_go()
    for configured in (None, Configured("prod"), Configured("prod", "third-id")):
        with pytest.raises(PreconditionError, match="say so with --config and clusterId: second-id"):
            _imported(place, lines, configured)
    _imported(place, lines, Configured("prod", "second-id"))
    assert (await (await place.opened(cluster_id="second-id")).load()).cluster_id == "second-id"


async def test_nothing_is_imported_while_a_server_has_the_journal(place: Place) -> None:
    journal = await place.opened()
    lines = _exported(place)
    async with renewed(journal):
        with pytest.raises(JournalLockedError, match=r"in use by process \d+"):
            await asyncio.to_thread(_imported, place, lines)


async def test_nobody_leads_during_an_import_and_anybody_can_afterwards(postgres_place: PostgresPlace) -> None:
    journal = await postgres_place.opened()
    lines = _exported(postgres_place)
    await postgres_place.let_go()
    _imported(postgres_place, lines)
    lease = postgres_place.lease()
    assert await lease.find_leader() is None
    assert await lease.acquire() == 3  # the import was the second
    assert journal.label


def _row(table: str, **values: Any) -> str:
    return json.dumps({"table": table, "row": values})


def _end(rows: int) -> str:
    return json.dumps({"end": True, "rows": rows})


_CLOUD = _row("clouds", name="lab", adopted_at=1.0)
_WRONG = {
    "nothing at all": ([], "line 1 is not JSON"),
    "another file": (["{}"], "not an export of a journal"),
    "only the beginning": (["HEAD", _CLOUD], "the end is missing"),
    "rows missing": (["HEAD", _CLOUD, _end(2)], "says 2 rows, but there are 1"),
    "more after the end": (["HEAD", _end(0), _CLOUD], "more after the end"),
    "no JSON": (["HEAD", "?", _end(1)], "line 2 is not JSON"),
    "no object": (["HEAD", "[]", _end(1)], "line 2 is not a JSON object"),
    "a foreign table": (["HEAD", _row("lease", id=1), _end(1)], "line 2 is not a row of a journal"),
    "no row": (["HEAD", '{"table": "clouds"}', _end(1)], "line 2 is not a row of a journal"),
    "a column missing": (["HEAD", _row("clouds", name="lab"), _end(1)], "a row of clouds has name, adopted_at"),
    "a wrong type": (["HEAD", _row("clouds", name=1, adopted_at=1.0), _end(1)], "name cannot be 1"),
    "a wrong time": (["HEAD", _row("clouds", name="lab", adopted_at="x"), _end(1)], "adopted_at cannot be 'x'"),
    "a true time": (["HEAD", _row("clouds", name="lab", adopted_at=True), _end(1)], "adopted_at cannot be True"),
    "null": (["HEAD", _row("clouds", name="lab", adopted_at=None), _end(1)], "adopted_at cannot be None"),
    "a wrong word": (
        ["HEAD", _row("pauses", scope="x", name="a", since=1.0, reason=""), _end(1)],
        "'x' is not a valid",
    ),
    "spec is a list": (
        ["HEAD", _row("node_groups", id="a", cloud="b", spec=[], configured=True), _end(1)],
        "not a JSON",
    ),
    "facts are text": (
        ["HEAD", _row("learned", group_id="a", settings={}, since=1.0, facts="x"), _end(1)],
        "not a JSON",
    ),
}


@pytest.mark.parametrize("case", _WRONG)
async def test_a_file_with_something_wrong_in_it_leaves_nothing_behind(sqlite_place: SqlitePlace, case: str) -> None:
    await sqlite_place.opened()
    head = _exported(sqlite_place)[0]
    await sqlite_place.let_go()
    lines, message = _WRONG[case]
    good = [_row("clouds", name=f"c-{number}", adopted_at=1.0) for number in range(3)]
    given = [head if line == "HEAD" else line for line in lines]
    if case not in {"rows missing", "more after the end"}:
        given[1:1] = good if given[:1] == [head] else []
        message = message.replace("line 2", "line 5")
    with pytest.raises(InvalidArgumentError, match=message.replace("(", r"\(")):
        _imported(sqlite_place, given)
    assert (await (await sqlite_place.opened()).load()).clouds == []


async def test_half_a_file_leaves_nothing_behind(place: Place) -> None:
    journal = await place.opened()
    lines = _exported(place)[:1] + [_row("clouds", name=f"c-{number}", adopted_at=1.0) for number in range(1200)]
    await place.let_go()
    with pytest.raises(InvalidArgumentError, match="the end is missing"):
        _imported(place, lines)
    await journal.open()
    assert (await journal.load()).clouds == []


async def test_an_export_of_another_release_is_refused(place: Place) -> None:
    await place.opened()
    lines = [line.replace(f'"schema":"{HEAD}"', '"schema":"0001"') for line in _exported(place)]
    await place.let_go()
    with pytest.raises(InvalidArgumentError, match="make the export with the same release"):
        _imported(place, lines)


async def test_an_export_makes_nothing_where_there_is_no_journal(tmp_path: Path, postgres_place: PostgresPlace) -> None:
    with pytest.raises(NotFoundError, match="there is no journal at"):
        _exported(SqlitePlace(tmp_path / "journal.db"))
    with pytest.raises(JournalBrokenError, match="is empty"):
        _exported(postgres_place)
    assert not (tmp_path / "journal.db").exists()


async def test_a_row_that_cannot_be_read_is_not_exported_as_if_it_could(place: Place) -> None:
    journal = await place.opened()
    await journal.write(Change(machines=[machine("m-1")]))
    with _direct(place) as database, database.transaction(Mode.WRITE) as connection:
        connection.exec_driver_sql("UPDATE machines SET settings = 'nonsense'")
    with pytest.raises(JournalBrokenError, match=r"machines m-1: the row does not match its checksum"):
        _exported(place)


class _direct:  # noqa: N801 - reads as a function
    """The database behind the journal's back."""

    def __init__(self, place: Place) -> None:
        self._database = place.database()

    def __enter__(self) -> Database:
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.close()
