"""Reservations of a database that did not keep whose they are: anybody's, until a client renews or confirms one."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from cloudgraft.discovery.model import ReservationState
from cloudgraft.discovery.store.schema import LAYOUT
from cloudgraft.sdk.errors import PermissionDeniedError
from cloudgraft.store import migrate
from cloudgraft.store.databases.database import Access, Mode
from cloudgraft.store.journal import JournalBrokenError
from tests.discovery.core.markets import NOON, Place, shape, spec

_SPEC = '{"capacity":{"cpu":"8"},"class":"default","cordoned":false,"displayName":"","labels":{},"maxNodes":null,'
_NETWORK = '"network":["direct","",0,0]}'


async def _old(place: Place) -> None:
    """The first release's database, with a cluster, something held, and something confirmed."""
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        migrate.upgrade(connection, "0001", LAYOUT)
        connection.execute(text("INSERT INTO discovery_state VALUES (1, 3)"))
        connection.execute(
            text("INSERT INTO discovery_clusters VALUES ('a', 3, 1, :spec, '[]', NULL, NULL)"),
            {"spec": _SPEC + _NETWORK},
        )
        for id_, is_confirmed, expires_at in (("r-1", False, NOON + 60), ("r-2", True, None)):
            connection.execute(
                text("INSERT INTO discovery_reservations VALUES (:id, 'a', :owner, :resources, :confirmed, :at)"),
                {
                    "id": id_,
                    "owner": f"us/{id_}",
                    "resources": '{"cpu":"2"}',
                    "confirmed": is_confirmed,
                    "at": expires_at,
                },
            )
    database.close()
    if isinstance(place.where, str):  # several servers may share it: it waits for a word
        with pytest.raises(JournalBrokenError, match="--upgrade"):
            await place.opened()
        database.open(Access.UPGRADE)
        database.close()


async def test_an_old_reservation_stays_usable_and_becomes_his_who_renews_or_confirms_it(each_place: Place) -> None:
    if not isinstance(each_place.where, str):
        each_place.where.touch()
    await _old(each_place)
    discovery = await each_place.opened()
    held, lasting = await discovery.reservations("")
    assert (held.id, held.state, held.reserved_by) == ("r-1", ReservationState.HELD, None)
    assert (lasting.id, lasting.state, lasting.reserved_by) == ("r-2", ReservationState.CONFIRMED, None)
    assert (await discovery.confirm("r-1", by="manager")).state is ReservationState.CONFIRMED
    assert await discovery.reserve("a", shape(cpu="2"), owner="us/r-2", seconds=60, by="manager") != lasting
    for id_ in ("r-1", "r-2"):
        for change in (discovery.confirm, discovery.release):
            with pytest.raises(PermissionDeniedError):
                await change(id_, by="rival")
        await discovery.release(id_, by="manager")
    assert await discovery.reservations("") == []


async def test_an_old_reservation_that_nobody_took_can_be_released_by_any_client(each_place: Place) -> None:
    if not isinstance(each_place.where, str):
        each_place.where.touch()
    await _old(each_place)
    discovery = await each_place.opened()
    for id_ in ("r-1", "r-2"):
        await discovery.release(id_, by="manager")
    assert await discovery.reservations("") == []


async def test_whose_it_is_outlives_the_server(each_place: Place) -> None:
    first = await each_place.opened()
    await first.put_cluster(spec("a"))
    held = await first.reserve("a", shape(cpu="2"), owner="us/m", seconds=60, by="manager")
    await first.close()
    second = await each_place.opened()
    with pytest.raises(PermissionDeniedError):
        await second.release(held.id, by="rival")
    assert await second.reservations("") == [held]
    await second.release(held.id)
    assert await second.reservations("") == []


async def test_what_is_reserved_where_clients_are_not_told_apart_is_anybodys(each_place: Place) -> None:
    """A server that gets its first clients must not lose what it has given away."""
    discovery = await each_place.opened()
    await discovery.put_cluster(spec("a"))
    held = await discovery.reserve("a", shape(cpu="2"), owner="us/m", seconds=60)
    again = await discovery.reserve("a", shape(cpu="2"), owner="us/m", seconds=60, by="manager")
    assert (again.id, again.reserved_by) == (held.id, "manager")
    with pytest.raises(PermissionDeniedError):
        await discovery.reserve("a", shape(cpu="2"), owner="us/m", seconds=60, by="rival")
