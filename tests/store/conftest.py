"""The same tests on both databases: `place` is a SQLite file and a PostgreSQL in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloudgraft.store.sql import SqlJournal
from tests.postgres import PostgresServer, postgres
from tests.store.places import Place, PostgresPlace, SqlitePlace

__all__ = ["ages", "journal", "passes", "place", "postgres", "postgres_place", "sqlite_place"]


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


@pytest.fixture
async def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass on the event loop: no limit ends before a test says so, however busy the machine is."""
    loop = asyncio.get_running_loop()
    time, ahead = loop.time, 0.0

    def passed(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + ahead)
    return passed


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass for leases, and for whoever waits for their end; without it they last, on any machine."""
    now = [1000.0]

    def aged(seconds: float) -> None:
        now[0] += seconds

    clock = SimpleNamespace(clock_gettime=lambda _clock: now[0], sleep=aged)
    monkeypatch.setattr("cloudgraft.store.lease.election._now", lambda: now[0])
    monkeypatch.setattr("cloudgraft.store.lease.no_leader.time", clock)
    return aged
