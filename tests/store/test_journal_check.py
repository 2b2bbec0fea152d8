"""`check_journal`: what is in a journal, and whether a server can work with it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from cloudgraft.store import schema as tables
from cloudgraft.store.databases.database import Database, Mode
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.maintenance.check import Report, check_journal
from cloudgraft.store.migrate import Schema
from cloudgraft.store.records import Change, Presence, State
from cloudgraft.store.rows import seal_all
from cloudgraft.store.schema import HEAD, metadata
from cloudgraft.store.sql import SqlJournal
from tests.store.places import Place, SqlitePlace, event, machine, machines


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    found = place.database()
    yield found
    found.close()


async def test_a_sound_journal_is_told_with_what_is_in_it(journal: SqlJournal, database: Database) -> None:
    gone = machine("gone", state=State.GONE, presence=Presence.NONE, gone_at=5.0)
    await journal.write(Change(machines=[*machines(3), gone], events=[event()] * 4))
    report = check_journal(database)
    contents = await journal.load()
    assert report.is_sound
    assert report.cluster_id == contents.cluster_id
    assert (report.schema, report.revision) == (Schema.CURRENT, HEAD)
    assert {state: count for state, count in report.machines.items() if count} == {"running": 3, "gone": 1}
    assert {table: count for table, count in report.rows.items() if count} == {"events": 4}
    assert set(report.rows) == set(metadata.tables) - {"journal", "machines", "lease", "fence"}


_ILLEGAL = {
    "state = 'asleep'": "machine {name}: 'asleep' is not a valid State",
    "presence = 'here'": "machine {name}: 'here' is not a valid Presence",
    "settings = '[]'": r"machine {name}: '\[\]' is not a JSON object",
    "tags = '{'": "machine {name}: Expecting property name",
    "hourly = 'much'": "machine {name}: .*ConversionSyntax",
    "version = 0": "machines {name}: its version is below 1",
    "state = 'gone'": "machines {name}: it is gone, but not since when",
    "machine_id = ''": "machines {name}: it is present in its cloud, but under no machine id",
    "machine_id = 'id-other'": "machines {name} and other both stand for id-other in lab",
}


async def test_rows_that_cannot_be_are_told_with_what_to_do(journal: SqlJournal, database: Database) -> None:
    names = [f"m-{number}" for number in range(len(_ILLEGAL))]
    await journal.write(Change(machines=[machine(name) for name in [*names, "other"]]))
    with journal._database.transaction(Mode.WRITE) as connection:
        for name, damage in zip(names, _ILLEGAL, strict=True):
            connection.exec_driver_sql(f"UPDATE machines SET {damage} WHERE name = '{name}'")
        seal_all(connection, tables.machines)  # as if it had been written so
    problems = sorted(
        check_journal(database).problems, key=lambda problem: problem.what.replace("machines ", "machine ")
    )
    for name, problem, words in zip(names, problems, _ILLEGAL.values(), strict=True):
        assert problem.fix.startswith("stop cloudgraft; put a backup in its place")
        assert re.match(words.format(name=name), problem.what), problem.what


async def test_of_very_many_problems_the_first_are_told(journal: SqlJournal, database: Database) -> None:
    await journal.write(Change(machines=machines(100)))
    with journal._database.transaction(Mode.WRITE) as connection:
        connection.execute(text("UPDATE machines SET version = 0"))
    problems = check_journal(database).problems
    assert len(problems) == 21
    assert problems[-1].what == "and 80 more rows"


async def test_a_journal_of_another_schema_is_told(place: Place) -> None:
    if isinstance(place, SqlitePlace):
        place.path.touch()
    report = _report(place)
    assert (report.is_sound, report.schema, report.problems[0].fix) == (
        False,
        Schema.EMPTY,
        "start cloudgraft on it, or import an export into it",
    )
    journal = await place.opened()
    for revision, schema, fix in (("0001", Schema.OLDER, "db upgrade"), ("9", Schema.NEWER, "newer release")):
        with journal._database.transaction(Mode.WRITE) as connection:
            connection.execute(text("UPDATE cloudgraft_version SET version_num = :revision"), {"revision": revision})
        report = _report(place)
        assert (report.is_sound, report.schema) == (False, schema)
        assert fix in report.problems[0].fix


async def test_a_file_that_others_can_read_is_a_warning(sqlite_place: SqlitePlace) -> None:
    await sqlite_place.opened()
    assert _report(sqlite_place).warnings == []
    sqlite_place.path.chmod(0o644)
    report = _report(sqlite_place)
    assert report.is_sound
    assert "chmod 600" in report.warnings[0]


async def test_damage_in_an_index_is_found_even_if_a_server_could_still_work(sqlite_place: SqlitePlace) -> None:
    journal = await sqlite_place.opened()
    await journal.write(Change(machines=[machine("m-1")], events=[event(at=float(number)) for number in range(2000)]))
    with journal._database.transaction() as connection:
        row = connection.exec_driver_sql("SELECT rootpage FROM sqlite_master WHERE name = 'ix_events_at'").one()
    await journal.close()
    content = sqlite_place.path.read_bytes()
    start = (row[0] - 1) * 4096
    page = bytearray(content[start : start + 4096])
    page[3:5] = b"\0\1"  # the index claims to have one entry
    sqlite_place.path.write_bytes(content[:start] + page + content[start + 4096 :])
    report = _report(sqlite_place)
    assert not report.is_sound
    assert "takes in its machines from the clouds" in report.problems[0].fix


async def test_a_file_that_is_no_journal_at_all_is_told(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "journal.db")
    place.path.write_bytes(os.urandom(10_000))
    with pytest.raises(JournalBrokenError, match=r"is damaged \(file is not a database\)"):
        _report(place)


def _report(place: Place) -> Report:
    database = place.database()
    try:
        return check_journal(database)
    finally:
        database.close()
