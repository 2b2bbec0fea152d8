"""Discovery's own tables, migrations and version, beside those of a journal or without one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.schema import HEAD, LAYOUT, metadata, version
from cloudgraft.sdk.errors import DeadlineError, PreconditionError, UnavailableError
from cloudgraft.store import migrate
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.journal import JournalBrokenError, JournalLockedError, JournalUnavailableError
from cloudgraft.store.migrate import Schema, SchemaState
from cloudgraft.store.sql import SqlJournal
from tests.discovery.core.markets import Place, shape, spec
from tests.postgres import PostgresServer


def _differences(database: Database) -> list[object]:
    with database.transaction() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": version.name,
                "include_name": lambda name, kind, _: kind != "table" or name.startswith("discovery_"),
            },
        )
        return list(compare_metadata(context, metadata))


def test_the_migrations_make_the_schema_that_the_code_works_with(place: Place) -> None:
    if isinstance(place.where, Path):
        place.where.touch()
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        migrate.upgrade(connection, layout=LAYOUT)
    assert _differences(database) == []
    assert database.open(Access.SERVE) == SchemaState(schema=Schema.CURRENT, revision=HEAD)
    database.close()


def test_a_new_database_has_the_schema_that_the_migrations_make(place: Place) -> None:
    database = place.database()
    assert database.open(Access.SERVE) == SchemaState(schema=Schema.EMPTY)
    assert _differences(database) == []
    database.close()


def test_the_newest_migration_is_the_one_that_the_code_expects() -> None:
    assert ScriptDirectory.from_config(migrate.alembic_config(LAYOUT)).get_heads() == [HEAD]


async def test_a_journal_and_a_discovery_may_share_one_postgresql(postgres_place: Place) -> None:
    assert isinstance(postgres_place.where, str)
    journal = SqlJournal.postgresql(postgres_place.where)
    await journal.open()
    discovery = await postgres_place.opened()
    await discovery.put_cluster(spec("a"))
    assert (await journal.load()).machines == []
    await journal.close()
    again = SqlJournal.postgresql(postgres_place.where)
    await again.open()
    await again.close()


async def test_the_file_of_a_journal_is_not_taken_for_a_discovery_nor_the_other_way_round(tmp_path: Path) -> None:
    journal = SqlJournal.sqlite(tmp_path / "journal.db")
    await journal.open()
    await journal.close()
    with pytest.raises(JournalBrokenError, match="the database of another program"):
        await Discovery(Discovery.sqlite(tmp_path / "journal.db")).open()
    discovery = Discovery(Discovery.sqlite(tmp_path / "discovery.db"))
    await discovery.open()
    await discovery.close()
    with pytest.raises(JournalBrokenError, match="the database of another program"):
        await SqlJournal.sqlite(tmp_path / "discovery.db").open()


async def test_many_that_start_at_once_on_nothing_all_come_up(place: Place) -> None:
    found = await asyncio.gather(*(place.opened() for _ in range(5)))
    await found[0].put_cluster(spec("a"))
    assert [len(await one.clusters()) for one in found] == [1] * 5


async def test_a_shared_file_is_not_upgraded_under_somebody_who_uses_it(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    discovery = await sqlite_place.opened()
    await discovery.put_cluster(spec("a"))
    with discovery._store._database.transaction(Mode.WRITE) as connection:
        connection.execute(text(f"DROP TABLE {version.name}"))
        for table in reversed(metadata.sorted_tables):
            table.drop(connection)
    with pytest.raises(JournalLockedError, match="stop all that use it first"):
        await sqlite_place.opened()
    await discovery.close()
    assert await (await sqlite_place.opened()).clusters() == []


async def test_a_database_of_a_newer_release_is_left_alone(place: Place) -> None:
    discovery = await place.opened()
    with discovery._store._database.transaction(Mode.WRITE) as connection:
        connection.execute(version.update().values(version_num="9999"))
    await discovery.close()
    with pytest.raises(PreconditionError, match="written by a newer cloudgraft"):
        await place.opened()


async def test_a_row_that_is_damaged_is_told_with_its_cluster(place: Place) -> None:
    discovery = await place.opened()
    await discovery.put_cluster(spec("a"))
    with discovery._store._database.transaction(Mode.WRITE) as connection:
        connection.execute(text("UPDATE discovery_clusters SET spec = '{}'"))
    with pytest.raises(JournalBrokenError, match="the row of cluster a is damaged"):
        await place.opened()


async def test_while_the_database_is_away_it_is_said_and_afterwards_it_goes_on(postgres: PostgresServer) -> None:
    with postgres.borrowed() as url:
        place = Place(url)
        discovery = await place.opened()
        await discovery.put_cluster(spec("a"))
        with postgres.stopped():
            with pytest.raises(UnavailableError):
                await discovery.clusters()
            with pytest.raises((UnavailableError, DeadlineError)):
                await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
        found = await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
        assert await discovery.reservations("") == [found]
        await place.let_go()


async def test_a_write_whose_end_is_unknown_is_not_told_as_undone(
    sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    discovery = await sqlite_place.opened()
    await discovery.put_cluster(spec("a"))
    database = discovery._store._database
    commit = database._commit

    def lost(*arguments: object) -> None:
        commit(*arguments)  # type: ignore[arg-type]  # whatever they are
        raise JournalUnavailableError("the answer was lost", is_ambiguous=True)

    with monkeypatch.context() as patched:
        patched.setattr(database, "_commit", lost)
        with pytest.raises(DeadlineError, match="whether it was done is not known: repeat it"):
            await discovery.reserve("a", shape(cpu="8"), owner="us/m", seconds=60)
    found = await discovery.reserve("a", shape(cpu="8"), owner="us/m", seconds=60)
    assert await discovery.reservations("") == [found]
