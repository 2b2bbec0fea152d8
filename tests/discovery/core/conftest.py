"""The same tests on both databases: `place` is a SQLite file and a PostgreSQL in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.discovery.service import Discovery
from tests.discovery.core.markets import Place
from tests.postgres import PostgresServer, postgres

__all__ = ["discovery", "each_place", "place", "postgres", "postgres_place", "sqlite_place"]


@pytest.fixture
async def sqlite_place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path / "discovery.db")
    yield place
    await place.let_go()


@pytest.fixture
async def postgres_place(postgres: PostgresServer) -> AsyncIterator[Place]:
    with postgres.borrowed() as url:
        place = Place(url)
        yield place
        await place.let_go()


@pytest.fixture(params=["sqlite", "postgresql"])
def each_place(request: pytest.FixtureRequest) -> Place:
    """For tests of what two servers do to each other, which is another matter in each database."""
    found: Place = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "postgres_place")
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.thorough)])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue("sqlite_place" if request.param == "sqlite" else "postgres_place")
    return found


@pytest.fixture
async def discovery(place: Place) -> Discovery:
    return await place.opened()
