"""The schema and its migrations, on both databases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, Table, text

from cloudgraft.store import migrate
from cloudgraft.store.databases.database import Access, Database, Mode
from cloudgraft.store.journal import EventQuery, JournalBrokenError, JournalLockedError
from cloudgraft.store.migrate import Schema, SchemaState
from cloudgraft.store.rows import machine_row
from cloudgraft.store.schema import HEAD, metadata, version
from tests.store.places import Place, PostgresPlace, SqlitePlace, change, machine, renewed

_FIRST = "0001"


@pytest.fixture
def database(place: Place) -> Iterator[Database]:
    found = place.database()
    yield found
    found.close()


def _differences(database: Database) -> list[object]:
    with database.transaction() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": version.name})
        return list(compare_metadata(context, metadata))


def _empty_file(place: Place) -> None:
    if isinstance(place, SqlitePlace):
        place.path.touch()


def _migrate(database: Database, to: str) -> None:
    with database.transaction(Mode.WRITE) as connection:
        migrate.upgrade(connection, to)


def test_the_migrations_make_the_schema_that_the_code_works_with(database: Database, place: Place) -> None:
    _empty_file(place)
    _migrate(database, "head")
    assert _differences(database) == []
    with database.transaction() as connection:
        assert migrate.look(connection) == SchemaState(schema=Schema.CURRENT, revision=HEAD)


def test_a_new_journal_has_the_schema_that_the_migrations_make(database: Database) -> None:
    assert database.open(Access.SERVE) == SchemaState(schema=Schema.EMPTY)
    assert _differences(database) == []


def test_both_ways_make_the_very_same_tables_in_sqlite(tmp_path: Path) -> None:
    """The comparison above does not see everything, for example AUTOINCREMENT."""
    made = []
    for name in ("by-migrations", "at-once"):
        place = SqlitePlace(tmp_path / name)
        database = place.database()
        _empty_file(place)
        if name == "by-migrations":
            _migrate(database, "head")
        else:
            database.open(Access.SERVE)
        with database.transaction() as connection:
            rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
            made.append({row.name: "".join(row.sql.split()) for row in rows})
        database.close()
    assert made[0] == made[1]


def test_the_newest_migration_is_the_one_that_the_code_expects() -> None:
    assert ScriptDirectory.from_config(migrate.alembic_config()).get_heads() == [HEAD]


async def test_an_older_sqlite_journal_is_brought_up_to_date_after_a_copy_was_made(
    sqlite_place: SqlitePlace, caplog: pytest.LogCaptureFixture
) -> None:
    _fill_old(sqlite_place)
    with caplog.at_level(logging.WARNING, "cloudgraft.store"):
        journal = await sqlite_place.opened()
    contents = await journal.load()
    assert [found.name for found in contents.machines] == ["m-1"]
    assert (contents.cluster_id, contents.latest_at) == ("old-id", machine("m-1").state_since)
    assert [found.at for found in await journal.events(EventQuery())] == [7.0]
    await journal.write(change(machine("m-2")))
    (copy,) = sqlite_place.path.parent.glob("journal.db.backup-0001-*")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert str(copy) in [getattr(record, "backup", "") for record in caplog.records]
    old = SqlitePlace(copy).database()
    assert old.open(Access.LOOK) == SchemaState(schema=Schema.OLDER, revision=_FIRST)
    with old.transaction() as connection:
        assert connection.execute(text("SELECT name FROM machines")).scalars().all() == ["m-1"]
    old.close()


async def test_an_older_postgresql_journal_waits_for_an_explicit_upgrade(postgres_place: PostgresPlace) -> None:
    """Several replicas share it; one that is new must not change it under the others."""
    _fill_old(postgres_place)
    with pytest.raises(JournalBrokenError, match="cloudgraft db upgrade"):
        await postgres_place.journal().open()
    database = postgres_place.database()
    assert database.open(Access.UPGRADE) == SchemaState(schema=Schema.OLDER, revision=_FIRST)
    assert database.open(Access.UPGRADE) == SchemaState(schema=Schema.CURRENT, revision=HEAD)
    database.close()
    journal = await postgres_place.opened()
    assert [found.name for found in (await journal.load()).machines] == ["m-1"]


async def test_postgresql_is_not_upgraded_while_a_replica_leads(postgres_place: PostgresPlace) -> None:
    journal = await postgres_place.opened()
    _pretend(postgres_place, _FIRST)
    database = postgres_place.database()
    async with renewed(journal):
        with pytest.raises(JournalLockedError, match=r"in use by process \d+ on .*stop all replicas"):
            await asyncio.to_thread(database.open, Access.UPGRADE)
    database.close()


async def test_a_lease_by_the_databases_clock_becomes_a_counter(postgres_place: PostgresPlace) -> None:
    """Up to schema 0006, a lease had an end by the database's clock."""
    _fill_old(postgres_place, "0004")
    database = postgres_place.database()
    _execute(database, "INSERT INTO lease VALUES (1, 'the old leader', 7, 1e12)")
    with pytest.raises(JournalLockedError, match="in use by the old leader: stop all replicas first"):
        database.open(Access.UPGRADE)
    _execute(database, "UPDATE lease SET expires_at = 0")
    assert database.open(Access.UPGRADE).schema is Schema.OLDER
    database.close()
    assert await postgres_place.lease().acquire() == 8  # epochs go on growing


async def test_a_replica_does_not_lead_on_a_schema_that_was_changed_meanwhile(postgres_place: PostgresPlace) -> None:
    journal, lease = postgres_place.journal(), postgres_place.lease()
    await journal.open()
    _pretend(postgres_place, "9999")
    with pytest.raises(JournalBrokenError, match="one release for all"):
        await lease.acquire()
    assert await lease.find_leader() is None


async def test_a_journal_of_a_newer_release_is_refused_and_left_alone(place: Place) -> None:
    await place.opened()
    await place.let_go()
    _pretend(place, "9999")
    with pytest.raises(JournalBrokenError, match=r"newer cloudgraft \(schema 9999.*upgrade"):
        await place.journal().open()
    database = place.database()
    assert database.open(Access.LOOK) == SchemaState(schema=Schema.NEWER, revision="9999")
    database.close()


async def test_tables_of_another_program_are_left_alone(place: Place) -> None:
    _empty_file(place)
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        connection.execute(text("CREATE TABLE machines (brand TEXT)"))
    with pytest.raises(JournalBrokenError, match="another program"):
        await place.journal().open()
    with database.transaction() as connection:
        assert connection.execute(text("SELECT brand FROM machines")).all() == []
    database.close()


async def test_two_replicas_may_start_on_an_empty_postgresql_at_once(postgres_place: PostgresPlace) -> None:
    journals = [postgres_place.journal() for _ in range(4)]
    await asyncio.gather(*(journal.open() for journal in journals))
    assert len({(await journal.load()).cluster_id for journal in journals}) == 1


def _fill_old(place: Place, revision: str = _FIRST) -> None:
    """A journal of an old release, with a machine in it."""
    _empty_file(place)
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        migrate.upgrade(connection, revision)
        connection.execute(text("INSERT INTO journal (id, cluster_id, created_at) VALUES (1, 'old-id', 0.0)"))
        old = Table("machines", MetaData(), autoload_with=connection)
        row = {name: value for name, value in machine_row(machine("m-1")).items() if name in old.c}
        connection.execute(old.insert().values(row))
        connection.execute(
            text(
                "INSERT INTO events (at, kind, message, cloud, group_id, machine, data) "
                "VALUES (7.0, 'told', 'because', '', '', 'm-1', '{}')"
            )
        )
    database.close()


def _pretend(place: Place, revision: str) -> None:
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        connection.execute(version.update().values(version_num=revision))
    database.close()


def _execute(database: Database, statement: str) -> None:
    with database.transaction(Mode.WRITE) as connection:
        connection.execute(text(statement))
