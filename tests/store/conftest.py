"""The same tests on both databases: `place` is a SQLite file and a PostgreSQL in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.store.sql import SqlJournal
from tests.postgres import PostgresServer, postgres
from tests.store.places import Place, PostgresPlace, SqlitePlace

__all__ = ["journal", "place", "postgres", "postgres_place", "sqlite_place"]


@pytest.fixture
async def sqlite_place(tmp_path: Path) -> AsyncIterator[SqlitePlace]:
    place = SqlitePlace(tmp_path / "journal.db")
    yield place
    await place.let_go()


@pytest.fixture
async def postgres_place(postgres: PostgresServer) -> AsyncIterator[PostgresPlace]:
    with postgres.borrowed() as url:
        place = PostgresPlace(url)
        yield place
        await place.let_go()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "postgres_place")
    return found


@pytest.fixture
async def journal(place: Place) -> SqlJournal:
    return await place.opened()
