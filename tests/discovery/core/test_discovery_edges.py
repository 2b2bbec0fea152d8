"""Where something could be given twice, or an old state be taken for the present one."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import delete, insert, select, update

from cloudgraft.discovery.model import ClusterState, Heartbeat, Need, Strategy
from cloudgraft.discovery.search.candidates import candidate_of
from cloudgraft.discovery.search.offers import search, why_not
from cloudgraft.discovery.search.reservations import Record
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store import schema
from cloudgraft.discovery.store.vault import Vault, new_key
from cloudgraft.sdk.errors import ConflictError, NotFoundError, OutOfStockError
from cloudgraft.store.databases.database import Access, Mode
from tests.discovery.core.markets import NOON, STALE_AFTER, Place, beat, prices, shape, spec


async def test_what_one_cluster_uses_takes_nothing_from_what_another_has_reserved(sqlite_place: Place) -> None:
    """A consumer that reserves nothing, or whose pods outlive their node for a while, fills nobody's reservation."""
    discovery = await sqlite_place.opened()
    await discovery.put_cluster(spec("a", capacity={}))
    await discovery.heartbeat("a", beat(cpu="8"))
    await discovery.reserve("a", shape(cpu="4"), owner="us/m", seconds=600)
    used = Heartbeat(free=shape(cpu="4"), allocatable=shape(cpu="8"), offloaded=shape(cpu="4"))
    await discovery.heartbeat("a", replace(used, offloaded_by={"them": shape(cpu="4")}))
    assert (await discovery.cluster("a")).reserved == shape(cpu="4")
    with pytest.raises(OutOfStockError, match="it has 0 cpu left"):
        await discovery.reserve("a", shape(cpu="1"), owner="us/n", seconds=600)
    await discovery.heartbeat("a", replace(used, offloaded_by={"us": shape(cpu="4")}))
    assert (await discovery.cluster("a")).reserved == shape(cpu="0")
    await discovery.reserve("a", shape(cpu="4"), owner="us/n", seconds=600)


async def test_who_uses_what_is_known_after_a_restart(place: Place) -> None:
    first = await place.opened()
    await first.put_cluster(spec("a", capacity={}))
    told = Heartbeat(allocatable=shape(cpu="8"), free=shape(cpu="4"), offloaded_by={"them": shape(cpu="4")})
    await first.heartbeat("a", told)
    second = await place.opened()
    record = second._index.record("a")
    assert record is not None
    assert record.beat == told


async def test_a_clock_that_is_put_back_keeps_nobody_ready_who_is_silent(sqlite_place: Place) -> None:
    discovery = await sqlite_place.opened()
    await discovery.put_cluster(spec("a", capacity={}))
    await discovery.heartbeat("a", beat(cpu="8"))
    sqlite_place.clock.now = NOON - 3600
    assert (await discovery.cluster("a")).state is ClusterState.STALE
    need = Need(resources=shape(cpu="1"), strategy=Strategy.FIRST_FIT)
    assert await discovery.search(need) == []
    sqlite_place.clock.now = NOON - STALE_AFTER + 1
    assert [one.cluster for one in await discovery.search(need)] == ["a"]
    sqlite_place.clock.now = NOON - 3600
    await discovery.heartbeat("a", beat(cpu="8"))
    assert (await discovery.cluster("a")).state is ClusterState.READY


@pytest.mark.parametrize("writes", [0, 1])
async def test_a_database_that_went_back_in_time_is_read_anew(each_place: Place, writes: int) -> None:
    """A backup was restored, or a replica that had missed the last writes became the primary."""
    discovery = await each_place.opened()
    await discovery.put_cluster(spec("a"))
    before = await discovery.put_cluster(spec("b"))
    await discovery.put_cluster(spec("c"))
    await discovery.put_cluster(spec("b", cordoned=True))
    other = each_place.database()
    other.open(Access.SERVE)
    table = schema.clusters
    with other.transaction(Mode.WRITE) as connection:
        row = dict(connection.execute(select(table).where(table.c.id == "a")).mappings().one())
        connection.execute(delete(table).where(table.c.id.in_(["b", "c"])))
        connection.execute(insert(table).values({**row, "id": "b", "seq": 2, "revision": before.revision}))
        connection.execute(update(schema.state).values(seq=2))
    other.close()
    for number in range(writes):
        await discovery.set_prices("a", [prices(str(number))])
    assert [(one.spec.id, one.spec.cordoned) for one in await discovery.clusters()] == [("a", False), ("b", False)]


async def test_prices_are_compared_and_set_in_one_step_whichever_server_is_asked(each_place: Place) -> None:
    one, other = await each_place.opened(), await each_place.opened()
    await one.put_cluster(spec("a"))
    await one.set_prices("a", [prices("1")])
    seen = one.price_revision(await one.prices("a"))
    assert seen == other.price_revision(await other.prices("a"))
    both = (one.set_prices("a", [prices("2")], revision=seen), other.set_prices("a", [prices("3")], revision=seen))
    results = await asyncio.gather(*both, return_exceptions=True)
    assert [type(result) for result in results if result is not None] == [ConflictError]
    won = "2" if results[0] is None else "3"
    assert list(await one.prices("a")) == list(await other.prices("a")) == [prices(won)]
    with pytest.raises(NotFoundError):
        await one.set_prices("b", [prices("1")], revision=seen)


async def test_what_is_cordoned_can_be_kept_so_whatever_is_declared(discovery: Discovery) -> None:
    assert (await discovery.put_cluster(spec("a"), keep_cordon=True)).state is ClusterState.READY
    await discovery.put_cluster(spec("a", cordoned=True))
    kept = await discovery.put_cluster(spec("a", labels={"new": "x"}), keep_cordon=True)
    assert (kept.spec.cordoned, kept.spec.labels) == (True, {"new": "x"})
    assert not (await discovery.put_cluster(spec("a"))).spec.cordoned


async def test_credentials_are_sealed_with_the_key_of_the_moment_they_are_written(sqlite_place: Place) -> None:
    """One that waits for the database while keys change would else be written with a key that is taken away next."""
    old = new_key()
    discovery = await sqlite_place.opened(vault=Vault.parse(old, where="test"))
    await discovery.put_cluster(spec("a"))
    let = threading.Event()
    busy = asyncio.create_task(discovery._store.read(lambda _: let.wait(30)))
    await asyncio.sleep(0)
    writing = asyncio.create_task(discovery.set_credentials("a", "kind: Config"))
    await asyncio.sleep(0)
    discovery.use_vault(Vault.parse(f"{new_key()}\n{old}", where="test"))
    let.set()
    await asyncio.gather(busy, writing)
    assert (await discovery.rotate()).rotated == 0
    assert await discovery.credentials("a") == "kind: Config"


def _asks(id_: str, cpu: str, **changes: object) -> Record:
    return Record(spec=spec(id_), revision=1, prices=[prices(cpu, **changes)])


def test_prices_are_ranked_exactly_also_where_floats_cannot_tell_them_apart() -> None:
    records = [_asks(f"c{n}", f"0.1{'0' * 16}{9 - n}") for n in range(9)]
    candidates = [candidate_of(record, NOON, STALE_AFTER) for record in records]
    found = search(candidates, Need(resources=shape(cpu="2"), limit=3))
    assert [offer.cluster for offer in found] == ["c8", "c7", "c6"]


def test_a_price_that_is_just_at_the_cap_is_not_above_it() -> None:
    """A third of a fee has no last digit; nothing is lost by it."""
    record = _asks("a", "0", fixed_per_node=Decimal("0.5"), peering_fee=Decimal(1))
    candidates = [candidate_of(record, NOON, STALE_AFTER)]
    need = Need(resources=shape(cpu="2"), horizon_hours=Decimal(3), price_cap=Decimal("0.84"))
    assert [offer.cluster for offer in search(candidates, need)] == ["a"]
    at_cap = Need(resources=shape(cpu="2"), horizon_hours=Decimal(2), price_cap=Decimal(1))
    assert [offer.cluster for offer in search(candidates, at_cap)] == ["a"]
    below = Need(resources=shape(cpu="2"), horizon_hours=Decimal(2), price_cap=Decimal("0.999999999999999"))
    assert search(candidates, below) == []
    assert "above the cap" in why_not(candidates, below)["a"]
