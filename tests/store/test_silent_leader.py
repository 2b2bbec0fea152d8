"""A leader that is stopped or cut off in the middle of a transaction keeps nobody from leading after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import psycopg
import pytest
from psycopg.pq.abc import PGconn

from cloudgraft.store import statements
from cloudgraft.store.databases.address import PostgresAddress
from cloudgraft.store.databases.database import Mode
from cloudgraft.store.databases.postgres import PostgresDatabase
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.lease import lease_row
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.records import Change
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.store.places import PostgresPlace, event, machine

SHORT = 1.5  # seconds, of the lease of the leader that falls silent


@pytest.fixture
async def old(postgres_place: PostgresPlace) -> SqlJournal:
    """The journal of a leader."""
    journal = postgres_place.journal(lease=postgres_place.lease(seconds=SHORT))
    await journal.open()
    assert journal._lease is not None
    await _takes_over(journal._lease)
    await journal.load()
    return journal


async def _takes_over(lease: Lease) -> None:
    async def has_taken_over() -> bool:
        # It waits for a lock that the other one holds, or the machine is busy: a short lease has little patience.
        with contextlib.suppress(JournalUnavailableError):
            return await lease.acquire() is not None
        return False

    await until(has_taken_over, what="this replica leads")


async def test_a_leader_that_falls_silent_before_its_commit_keeps_nobody_from_leading(
    old: SqlJournal, postgres_place: PostgresPlace
) -> None:
    """To hear of several rows, the driver sends a Flush after the Sync: that stops PostgreSQL's own limit."""
    assert old._claim is not None
    _make_events_slow(postgres_place)  # as a network would: else the driver may have its answer before it asks
    lease = postgres_place.lease(seconds=3.0)
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(old._database.transaction(Mode.WRITE))
        lease_row.fence(connection, old._claim)
        statements.write_change(connection, Change(machines=[machine("m-1")], events=[event(), event()]))
        await _takes_over(lease)
        with pytest.raises(JournalUnavailableError) as caught:
            stack.close()
    assert caught.value.is_ambiguous
    new = postgres_place.journal(lease=lease)
    await new.open()
    assert (await new.load()).machines == []


def _make_events_slow(place: PostgresPlace) -> None:
    with psycopg.connect(place.url) as connection:
        body = "BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END"
        connection.execute(f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS '{body}'".encode())
        connection.execute(b"CREATE TRIGGER slow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION slow()")


def _in_a_pipeline(connection: PGconn) -> None:
    connection.enter_pipeline_mode()
    connection.send_query_params(b"SELECT 1 FROM lease FOR UPDATE", None)
    connection.send_flush_request()
    connection.flush()


def _with_an_answer_that_is_not_read(connection: PGconn) -> None:
    large = b"SELECT repeat('x', 1000000) FROM generate_series(1, 50)"
    connection.send_query(b"BEGIN; SELECT 1 FROM lease FOR UPDATE; " + large)
    connection.flush()


@pytest.mark.parametrize("falls_silent", [_in_a_pipeline, _with_an_answer_that_is_not_read])
async def test_whatever_a_leader_was_doing_others_lead_after_it(
    old: SqlJournal, postgres_place: PostgresPlace, falls_silent: Callable[[PGconn], None]
) -> None:
    with psycopg.connect(postgres_place.url, application_name=lease_row.REPLICA) as connection:
        falls_silent(connection.pgconn)
        await _takes_over(postgres_place.lease(seconds=3.0))
        connection.close()


async def test_a_patient_session_that_holds_the_lease_is_left_alone(
    old: SqlJournal, postgres_place: PostgresPlace
) -> None:
    """An import keeps replicas from leading for as long as it takes."""
    importing = PostgresDatabase(PostgresAddress.parse(postgres_place.url), patient=True)
    lease = postgres_place.lease(seconds=3.0)
    refusals: list[str] = []

    async def is_refused_often() -> bool:
        try:
            assert await lease.acquire() is None
        except JournalUnavailableError as error:
            refusals.append(error.message)
        return len(refusals) == 3  # each after a second, the time after which a silent replica's session is ended

    with importing.transaction(Mode.WRITE) as connection:
        lease_row.look(connection, lock=True)
        await until(is_refused_often)
        lease_row.look(connection, lock=True)
    importing.close()
    await _takes_over(lease)
