"""What is true of a journal in PostgreSQL: it survives the server's absence, and never hangs with it."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cloudgraft.sdk.common.extras import install_command
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.journal import FencedError, JournalBrokenError, JournalUnavailableError
from cloudgraft.store.records import Change
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.postgres import PostgresServer
from tests.store.places import PostgresPlace, change, event, machine, machines, told_when_it_writes

_GATE = 4711  # the advisory lock at which a COMMIT can be made to wait


@pytest.fixture
async def journal(postgres_place: PostgresPlace) -> SqlJournal:
    return await postgres_place.opened()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """For tests that stop or freeze it: the shared one is not to be disturbed."""
    with PostgresServer.started() as server:
        yield server


@pytest.fixture
async def own_place(own_server: PostgresServer) -> AsyncIterator[PostgresPlace]:
    place = PostgresPlace(own_server.database())
    yield place
    await place.let_go()


async def test_a_server_that_was_restarted_is_found_again_without_help(
    own_server: PostgresServer, own_place: PostgresPlace
) -> None:
    journal = await own_place.opened()
    await journal.write(change(machine("before")))
    with own_server.stopped():
        with pytest.raises(JournalUnavailableError, match="goes on by itself once the server answers") as caught:
            await journal.write(change(machine("during")))
        assert not caught.value.is_ambiguous
        with pytest.raises(JournalUnavailableError):
            await journal.load()
        with pytest.raises(JournalUnavailableError):
            await own_place.journal().open()
    with pytest.raises(FencedError, match="restarted or has failed over"):
        await journal.write(change(machine("blind")))  # what it knows may not be what this server has
    assert journal._lease is not None
    assert await journal._lease.acquire() == 2
    await journal.load()
    await journal.write(change(machine("after")))
    assert [found.name for found in (await journal.load()).machines] == ["after", "before"]


async def test_a_server_that_stands_still_is_given_up_and_found_again(
    own_server: PostgresServer,
    own_place: PostgresPlace,
    monkeypatch: pytest.MonkeyPatch,
    passes: Callable[[float], None],
) -> None:
    """The server's own time limits stand still with it, and its connections stay open."""
    journal = await own_place.opened()
    begun = told_when_it_writes(journal, monkeypatch)
    with own_server.frozen():
        writing = asyncio.ensure_future(journal.write(change(machine("m-1"))))
        await until(begun.is_set)
        passes(14)
        await asyncio.sleep(0.001)  # whatever is due comes before it
        assert not writing.done()  # and the event loop is not blocked
        passes(1)
        with pytest.raises(JournalUnavailableError, match="did not answer within 15 s") as caught:
            await writing
        assert caught.value.is_ambiguous
    first = [found.name for found in (await journal.load()).machines]
    assert first in ([], ["m-1"])
    await journal.write(change(machine("m-2")))
    assert [found.name for found in (await journal.load()).machines] == [*first, "m-2"]


async def test_a_connection_that_is_ended_before_the_commit_has_written_nothing(
    postgres: PostgresServer, journal: SqlJournal, postgres_place: PostgresPlace
) -> None:
    with _held(postgres_place, "LOCK TABLE machines IN EXCLUSIVE MODE") as blocker:
        writing = asyncio.ensure_future(journal.write(change(machine("m-1"))))
        await until(lambda: _ends_whoever_waits(postgres, postgres_place, "pg_terminate_backend"))
        with pytest.raises(JournalUnavailableError, match="terminating connection") as caught:
            await writing
        blocker.rollback()
    assert not caught.value.is_ambiguous
    assert (await journal.load()).machines == []
    await journal.write(change(machine("m-1")))


async def test_a_connection_that_is_ended_during_the_commit_leaves_the_outcome_open(
    postgres: PostgresServer, journal: SqlJournal, postgres_place: PostgresPlace
) -> None:
    _put_a_gate_before_commits(postgres_place)
    with _held(postgres_place, f"SELECT pg_advisory_lock({_GATE})"):
        writing = asyncio.ensure_future(journal.write(_told("m-1")))
        await until(lambda: _ends_whoever_waits(postgres, postgres_place, "pg_terminate_backend"))
        with pytest.raises(JournalUnavailableError) as caught:
            await writing
    assert caught.value.is_ambiguous
    assert (await journal.load()).machines == []  # in this case; the next test has the other


async def test_a_commit_whose_answer_is_lost_is_settled_by_the_next_load(
    postgres: PostgresServer, journal: SqlJournal, postgres_place: PostgresPlace
) -> None:
    """The server is still at it when the connection is gone; the load waits until it is done."""
    _put_a_gate_before_commits(postgres_place)
    with _held(postgres_place, f"SELECT pg_advisory_lock({_GATE})") as gate:
        writing = asyncio.ensure_future(journal.write(_told("m-1")))
        await until(lambda: _waiting(postgres, postgres_place, "advisory") == 1)
        journal._database.cut()
        with pytest.raises(JournalUnavailableError) as caught:
            await writing
        assert caught.value.is_ambiguous
        loading = asyncio.ensure_future(journal.load())
        await until(lambda: _waiting(postgres, postgres_place, "advisory", "transactionid", "tuple") == 2)
        gate.rollback()
        gate.execute(f"SELECT pg_advisory_unlock({_GATE})".encode())
    assert [found.name for found in (await loading).machines] == ["m-1"]


async def test_a_lock_that_somebody_holds_is_not_waited_for_for_ever(
    postgres: PostgresServer, postgres_place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudgraft.store.databases.postgres._HURRIED", "-c lock_timeout=50")
    journal = await postgres_place.opened()
    with _held(postgres_place, "LOCK TABLE machines IN EXCLUSIVE MODE"):
        with pytest.raises(JournalUnavailableError, match="another session holds a lock") as caught:
            await journal.write(change(machine("m-1")))
        assert not caught.value.is_ambiguous
    await journal.write(change(machine("m-1")))


async def test_every_connection_has_time_limits_and_waits_for_the_disk(
    postgres: PostgresServer, journal: SqlJournal, postgres_place: PostgresPlace
) -> None:
    database = postgres_place.url.split("/")[3].split("?")[0]
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    journal._database.engine.dispose()
    names = "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "synchronous_commit"
    with journal._database.transaction() as connection:
        found = {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names}
    assert found == dict(zip(names, ["5s", "3s", "5s", "on"], strict=True))
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = remote_apply")
    journal._database.engine.dispose()
    with journal._database.transaction() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "remote_apply"


async def test_passwords_are_in_no_message_and_a_new_one_is_taken_without_a_restart(
    postgres: PostgresServer, postgres_place: PostgresPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Law 9. The role `secretive` must give a password; see tests/postgres.py."""
    postgres.execute("DROP ROLE IF EXISTS secretive")
    postgres.execute("CREATE ROLE secretive LOGIN SUPERUSER PASSWORD 'hunter2'")
    database = PostgresAddress.parse(postgres_place.url).database
    wrong = SqlJournal.postgresql(postgres.url(database, role="secretive", password="swordfish"))
    with caplog.at_level(logging.DEBUG), pytest.raises(JournalUnavailableError, match="pg_hba") as caught:
        await wrong.open()
    file = tmp_path / "password"
    file.write_text("swordfish\n")
    address = PostgresAddress(host=str(postgres.directory), database=database, user="secretive", password_file=file)
    journal = SqlJournal.postgresql(address)
    with pytest.raises(JournalUnavailableError, match="password authentication failed"):
        await journal.open()
    file.write_text("hunter2\n")
    await journal.open()
    await journal.close()
    file.unlink()
    with pytest.raises(JournalUnavailableError, match=r"cannot read the password for .*: No such file"):
        await journal.open()
    told = [*traceback.format_exception(caught.value), repr(wrong._database._address), wrong.label, caplog.text]  # type: ignore[attr-defined]  # PostgreSQL's
    assert "swordfish" not in "".join(told)
    assert "secretive" in wrong.label


async def test_a_database_that_is_not_there_is_told(postgres: PostgresServer) -> None:
    with pytest.raises(JournalUnavailableError, match="create the database, or name another"):
        await SqlJournal.postgresql(postgres.url("nowhere")).open()


async def test_a_user_who_may_not_make_tables_is_told(postgres: PostgresServer, postgres_place: PostgresPlace) -> None:
    postgres.execute("DROP ROLE IF EXISTS reader")
    postgres.execute("CREATE ROLE reader LOGIN")
    database = PostgresAddress.parse(postgres_place.url).database
    with pytest.raises(JournalUnavailableError, match="must be allowed to read, write and create tables"):
        await SqlJournal.postgresql(postgres.url(database, role="reader")).open()


async def test_a_database_that_cannot_hold_every_character_is_refused(postgres: PostgresServer) -> None:
    postgres.execute("DROP DATABASE IF EXISTS plain")
    postgres.execute("CREATE DATABASE plain TEMPLATE template0 ENCODING 'SQL_ASCII'")
    with pytest.raises(JournalBrokenError, match="ENCODING 'UTF8'"):
        await SqlJournal.postgresql(postgres.url("plain")).open()


async def test_a_table_that_is_missing_is_told(journal: SqlJournal, postgres_place: PostgresPlace) -> None:
    with _held(postgres_place, "DROP TABLE events") as connection:
        connection.commit()
    with pytest.raises(JournalBrokenError, match="cloudgraft db check"):
        await journal.write(Change(machines=machines(1), events=[event()]))
    with journal._database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM machines").scalar() == 0


def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    why = f"psycopg, which is not installed: {install_command('postgresql')}"
    with pytest.raises(PreconditionError, match=re.escape(why)):
        SqlJournal.postgresql("postgresql://db/cloudgraft")


def test_an_address_is_read_from_a_url_and_shown_without_its_password() -> None:
    url = "postgresql://me:s%40cret@db.example.org:6432/cloud%2Fgraft?sslmode=verify-full&sslrootcert=/ca.crt"
    address = PostgresAddress.parse(url)
    assert address == PostgresAddress(
        host="db.example.org",
        port=6432,
        database="cloud/graft",
        user="me",
        password="s@cret",
        sslmode="verify-full",
        sslrootcert="/ca.crt",
    )
    assert str(address) == "postgresql://me@db.example.org:6432/cloud/graft"
    assert "s@cret" not in repr(address)
    assert address.parameters()["password"] == "s@cret"
    assert PostgresAddress.parse("postgres:///db?host=/run/sock&port=5").parameters() == {
        "host": "/run/sock",
        "port": 5,
        "dbname": "db",
    }
    assert str(PostgresAddress.parse("postgresql://[::1]:5432/db")) == "postgresql://[::1]:5432/db"


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:s3cret@db/x",
        "postgresql://me:s3cret@db:port/x",
        "postgresql://me:s3cret@db/x?options=-c",
        "postgresql://me:s3cret@db/x?port=a",
        "postgresql://me:s3cret@[db/x",
    ],
)
def test_a_wrong_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"write (it|the URL) like postgresql://") as caught:
        PostgresAddress.parse(url)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@contextmanager
def _held(place: PostgresPlace, statement: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A stranger's transaction in which the statement was run."""
    with psycopg.connect(place.url) as connection:
        connection.execute(statement.encode())
        yield connection


def _put_a_gate_before_commits(place: PostgresPlace) -> None:
    """From now on, the COMMIT of a change with an event waits for an advisory lock."""
    with psycopg.connect(place.url) as connection:
        connection.execute(
            f"CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS "
            f"'BEGIN PERFORM pg_advisory_xact_lock({_GATE}); RETURN NULL; END'".encode()
        )
        connection.execute(
            b"CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED "
            b"FOR EACH ROW EXECUTE FUNCTION wait_at_gate()"
        )


def _told(name: str) -> Change:
    return Change(machines=[machine(name)], events=[event()])


def _waiting(server: PostgresServer, place: PostgresPlace, *kinds: str) -> int:
    """How many of our connections wait for a lock of that kind."""
    wanted = ", ".join(f"'{kind}'" for kind in kinds)
    database = PostgresAddress.parse(place.url).database
    rows = server.execute(
        "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted "
        f"AND l.locktype IN ({wanted}) AND a.datname = '{database}' AND application_name = 'cloudgraft'"
    )
    return int(str(rows[0][0]))


def _ends_whoever_waits(server: PostgresServer, place: PostgresPlace, function: str) -> bool:
    database = PostgresAddress.parse(place.url).database
    rows = server.execute(
        f"SELECT {function}(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{database}' "
        "AND application_name = 'cloudgraft'"
    )
    return len(rows) == 1
