"""Journals that earlier releases wrote are read as they were meant. Each stays here for good."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.maintenance.transfer import import_lines
from cloudgraft.store.schema import HEAD
from tests.golden.forms import text_of
from tests.store.golden_journal import CHANGE, FOLDER, exported, make, records_of
from tests.store.places import SqlitePlace

_SCHEMAS = sorted(path.stem.removeprefix("journal-") for path in FOLDER.glob("journal-*.sql"))


def _records(schema: str) -> object:
    return json.loads((FOLDER / f"journal-{schema}.records.json").read_text("utf-8"))


def _export(schema: str) -> list[str]:
    return (FOLDER / f"journal-{schema}.export").read_text("utf-8").splitlines()


def test_there_is_a_journal_of_the_present_schema() -> None:
    """Write one (see golden_journal.py) before a release goes out with a new schema."""
    assert HEAD in _SCHEMAS


@pytest.mark.parametrize("schema", _SCHEMAS)
async def test_the_records_of_a_journal_are_what_they_were(schema: str, tmp_path: Path) -> None:
    place = SqlitePlace(make(tmp_path, schema))
    journal = await place.opened()
    found = records_of(await journal.load(), await journal.events(EventQuery(limit=100)))
    await place.let_go()
    assert text_of(found) == text_of(_records(schema))


def test_the_export_of_a_journal_is_what_it_was(tmp_path: Path) -> None:
    assert exported(SqliteDatabase(make(tmp_path, HEAD))) == _export(HEAD)


async def test_an_export_is_imported_as_what_it_was(tmp_path: Path) -> None:
    lines = _export(HEAD)
    database = SqliteDatabase(tmp_path / "new.db")
    try:
        assert import_lines(database, lines) == len(lines) - 2
    finally:
        database.close()
    place = SqlitePlace(tmp_path / "new.db")
    journal = await place.opened()
    found = records_of(await journal.load(), await journal.events(EventQuery(limit=100)))
    await place.let_go()
    assert text_of(found) == text_of(_records(HEAD))


async def test_what_is_written_today_is_exported_as_it_was(tmp_path: Path) -> None:
    """A release of the day before can read it: the rows are the same to the letter."""
    place = SqlitePlace(tmp_path / "journal.db")
    journal = await place.opened(cluster_id="abcdefghij")
    await journal.write(CHANGE)
    await place.let_go()
    assert exported(SqliteDatabase(place.path))[1:] == _export(HEAD)[1:]
