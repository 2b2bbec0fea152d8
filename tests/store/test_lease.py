"""One leader at a time, without asking any clock but one's own; a former leader writes nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from cloudgraft.store.journal import FencedError, JournalBrokenError, JournalUnavailableError
from cloudgraft.store.lease.election import Lease
from cloudgraft.store.records import Change
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.postgres import PostgresServer, shift_database_clock
from tests.store.places import PostgresPlace, change, machine


@pytest.fixture
async def place(postgres_place: PostgresPlace) -> PostgresPlace:
    """A place whose tables are there already."""
    await postgres_place.journal().open()
    return postgres_place


async def _replica(place: PostgresPlace) -> tuple[SqlJournal, Lease]:
    lease = place.lease()
    journal = place.journal(lease=lease)
    await journal.open()
    return journal, lease


def _release_for(place: PostgresPlace) -> None:
    """As if the lease had ended, and its holder did not know."""
    with psycopg.connect(place.url) as connection:
        connection.execute(b"UPDATE lease SET holder = ''")


async def test_of_several_replicas_one_leads_and_all_know_which(place: PostgresPlace) -> None:
    leases = [place.lease() for _ in range(4)]
    epochs = await asyncio.gather(*(lease.acquire() for lease in leases))
    assert sorted(epochs, key=str) == [1, None, None, None]
    leader = leases[epochs.index(1)]
    for lease in leases:
        found = await lease.find_leader()
        assert found is not None
        assert (found.holder, found.epoch) == (leader.holder, 1)
        assert 0 < found.seconds_left <= 15
        assert (lease.claim is not None) == (lease is leader)
        assert (lease.seconds_left() > 0) == (lease is leader)


async def test_a_lease_is_renewed_by_its_holder_only(place: PostgresPlace) -> None:
    first, second = place.lease(), place.lease()
    assert await first.renew() is False  # it never had it
    assert await first.acquire() == 1
    assert await second.renew() is False
    assert await first.renew() is True
    assert 0 < first.seconds_left() <= 15
    _release_for(place)
    assert await first.renew() is False
    assert (first.claim, first.seconds_left()) == (None, 0.0)
    assert await second.acquire() == 2
    assert await first.renew() is False


async def test_a_lease_ends_when_it_was_not_renewed_for_its_length(
    place: PostgresPlace, ages: Callable[[float], None]
) -> None:
    first, second = place.lease(), place.lease(seconds=60.0)
    assert await first.acquire() == 1
    assert await second.acquire() is None
    ages(14)
    assert first.seconds_left() == 1.0
    assert await second.acquire() is None
    ages(1)
    assert first.seconds_left() == 0.0  # it knows by its own clock, before anybody else can have it
    assert await second.acquire() == 2  # it waits for the holder's lease, not for its own
    assert await first.renew() is False


async def test_each_renewal_makes_others_wait_again(place: PostgresPlace, ages: Callable[[float], None]) -> None:
    first, second = place.lease(), place.lease()
    assert await first.acquire() == 1
    for _ in range(5):
        assert await second.acquire() is None
        ages(10)  # longer than the lease in all
        assert await first.renew() is True


@pytest.mark.parametrize("jump", [-600, 600])
async def test_no_clock_of_the_database_that_jumps_stops_or_hastens_a_takeover(
    place: PostgresPlace, ages: Callable[[float], None], jump: int
) -> None:
    """Ten minutes back once stopped the take-over for as long; forward, it elected a second leader early."""
    first, second = place.lease(), place.lease()
    assert await first.acquire() == 1
    assert await second.acquire() is None
    shift_database_clock(place.url, jump)
    await first.close()  # so that the next connection sees the new clock
    await second.close()
    ages(14)
    assert await second.acquire() is None  # not early
    assert second.clock.offset == pytest.approx(jump, abs=5)
    ages(1)
    assert await second.acquire() == 2  # nor late


async def test_a_restarted_process_of_the_same_name_is_another_holder(place: PostgresPlace) -> None:
    first, second = (Lease(place.url, holder="replica-0", seconds=60) for _ in range(2))
    assert await first.acquire() == 1
    assert await second.acquire() is None
    assert await first.renew() is True
    await first.release()
    await first.close()
    await second.close()


async def test_a_released_lease_can_be_taken_at_once_in_a_higher_epoch(place: PostgresPlace) -> None:
    first, second = place.lease(), place.lease()
    await first.release()
    assert await first.acquire() == 1
    await first.release()
    assert (first.claim, first.seconds_left(), await first.find_leader()) == (None, 0.0, None)
    assert await second.acquire() == 2
    await first.release()  # not its own any more
    assert await first.acquire() is None


async def test_who_takes_its_own_lease_again_gets_a_new_epoch(place: PostgresPlace) -> None:
    """After an acquire() whose answer was lost, for example: what was under way in the old epoch is void."""
    journal, lease = await _replica(place)
    assert await lease.acquire() == 1
    await journal.load()
    assert await lease.acquire() == 2
    with pytest.raises(FencedError):
        await journal.write(change(machine("m-1")))
    await journal.load()
    await journal.write(change(machine("m-1")))


async def test_the_late_writes_of_a_former_leader_are_refused_by_the_database(place: PostgresPlace) -> None:
    old, old_lease = await _replica(place)
    new, new_lease = await _replica(place)
    await old_lease.acquire()
    await old.load()
    await old.write(change(machine("m-1")))
    _release_for(place)
    with pytest.raises(FencedError, match="does not lead any more"):
        await old.write(change(machine("m-2")))
    assert await new_lease.acquire() == 2
    contents = await new.load()
    assert [found.name for found in contents.machines] == ["m-1"]
    with pytest.raises(FencedError):
        await old.write(change(machine("m-2")))
    with pytest.raises(FencedError):
        await old.purge(gone_before=9e9, events_before=9e9)
    with pytest.raises(FencedError):
        await old.load()  # as a leader; what it read could not be written on
    await new.write(change(machine("m-1", version=2), machine("m-3")))
    assert [found.name for found in (await new.load()).machines] == ["m-1", "m-3"]


async def test_what_was_loaded_before_another_leader_came_is_not_built_on(place: PostgresPlace) -> None:
    """Leader, then not, then leader again, without a load in between: the memory is of another time."""
    old, old_lease = await _replica(place)
    new, new_lease = await _replica(place)
    await old_lease.acquire()
    await old.load()
    await old_lease.release()
    await new_lease.acquire()
    await new.load()
    await new.write(change(machine("m-1")))
    await new_lease.release()
    await old_lease.acquire()
    with pytest.raises(FencedError):
        await old.write(change(machine("m-2")))
    assert len((await old.load()).machines) == 1
    await old.write(change(machine("m-2")))


async def test_who_does_not_lead_can_read_but_not_write(place: PostgresPlace) -> None:
    leading, lease = await _replica(place)
    await lease.acquire()
    await leading.load()
    await leading.write(change(machine("m-1")))
    standby, _ = await _replica(place)
    reader = SqlJournal.postgresql(place.url)
    await reader.open()
    for journal in (standby, reader):
        assert len((await journal.load()).machines) == 1
        with pytest.raises(FencedError, match="does not lead"):
            await journal.write(Change())
    await reader.close()


async def test_nobody_takes_over_in_the_middle_of_a_write(
    place: PostgresPlace, postgres: PostgresServer, ages: Callable[[float], None]
) -> None:
    """The write holds the lease row: whoever wants the lease waits for it, and then finds what was written."""
    old, old_lease = await _replica(place)
    new, new_lease = await _replica(place)
    await old_lease.acquire()
    await old.load()
    assert await new_lease.acquire() is None
    ages(15)
    with psycopg.connect(place.url) as stranger:
        stranger.execute(b"LOCK TABLE machines IN EXCLUSIVE MODE")
        writing = asyncio.ensure_future(old.write(change(machine("m-1"))))
        await until(lambda: _waits(postgres, "relation"))
        acquiring = asyncio.ensure_future(new_lease.acquire())
        await until(lambda: _waits(postgres, "transactionid"))
        stranger.rollback()
    await writing
    assert await acquiring == 2
    assert [found.name for found in (await new.load()).machines] == ["m-1"]


async def test_a_lease_does_not_wait_behind_the_journal(place: PostgresPlace, postgres: PostgresServer) -> None:
    journal, lease = await _replica(place)
    await lease.acquire()
    await journal.load()
    with psycopg.connect(place.url) as stranger:
        stranger.execute(b"LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.ensure_future(journal.purge(gone_before=0.0, events_before=0.0))
        await until(lambda: _waits(postgres, "relation"))
        assert await lease.find_leader() is not None
        stranger.rollback()
    await reading


async def test_without_the_database_a_lease_is_neither_renewed_nor_lost_before_its_time(
    ages: Callable[[float], None],
) -> None:
    with PostgresServer.started() as server:
        place = PostgresPlace(server.database())
        journal, lease = await _replica(place)
        assert await lease.acquire() == 1
        with server.stopped():
            with pytest.raises(JournalUnavailableError):
                await lease.renew()
            ages(10)
            assert lease.seconds_left() == 5.0
        assert await lease.renew() is False  # the server was restarted: what it holds must be read again
        assert await lease.acquire() == 2  # but nobody else can have led meanwhile
        assert await lease.renew() is True
        with server.frozen():
            lease.seconds = 3.0  # a call has a third of it
            with pytest.raises(JournalUnavailableError, match="did not answer within 1 s"):
                await lease.renew()
            assert lease.claim is not None
        await place.let_go()
        assert journal.label.startswith("postgresql://")


async def test_a_lease_needs_a_journal_that_was_opened_before(postgres_place: PostgresPlace) -> None:
    with pytest.raises(JournalBrokenError, match="lacks a table"):
        await postgres_place.lease().acquire()


def _waits(server: PostgresServer, kind: str) -> bool:
    rows = server.execute(
        f"SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND locktype = '{kind}' "
        "AND application_name = 'cloudgraft'"
    )
    return bool(rows)


async def test_whoever_does_not_hear_from_the_database_is_not_next(
    place: PostgresPlace, ages: Callable[[float], None]
) -> None:
    """Another replica may have its place in line meanwhile, and may even lead."""
    old, new = place.lease(), place.lease(rollout="new")
    assert (await old.acquire(), await new.acquire()) == (1, None)
    await new.find_leader()
    assert new.is_next()
    ages(14)
    assert new.is_next()
    ages(1)
    assert not new.is_next()
    await new.find_leader()
    assert new.is_next()
