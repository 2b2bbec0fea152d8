"""Discovery on both databases: the register, heartbeats, prices, reservations."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cloudgraft.discovery import service
from cloudgraft.discovery.model import (
    ClusterSpec,
    ClusterState,
    Heartbeat,
    Market,
    Need,
    Network,
    NetworkMode,
    Strategy,
)
from cloudgraft.discovery.model import ReservationState as State
from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity
from tests.discovery.core.markets import NOON, STALE_AFTER, Place, beat, prices, shape, spec


async def test_what_the_liqo_driver_asks_can_also_be_asked_in_process(discovery: Discovery) -> None:
    market: Market = discovery
    await discovery.put_cluster(spec("a"))
    await discovery.set_prices("a", [prices("1")])
    (offer,) = await market.search(Need(resources=shape(cpu="2")))
    held = await market.reserve(offer.cluster, shape(cpu="2"), owner="us/m", seconds=60)
    assert await market.reservations("us/") == [held]


async def test_what_was_declared_comes_back_whole_also_after_a_restart(each_place: Place) -> None:
    whole = ClusterSpec(
        id="turin-1",
        display_name="Turin, größer",
        labels={"country": "italy", "example.org/tier": ""},
        capacity=shape(cpu="1500m", memory="3Gi", **{"nvidia.com/gpu": "2"}),
        max_nodes=3,
        network=Network(mode=NetworkMode.ADDRESS_OVERRIDE, address="192.0.2.1", port=51840, node_port=30001),
        resource_slice_class="fair",
        cordoned=True,
    )
    lists = [prices(valid_from=datetime(2026, 1, 1, tzinfo=UTC), peering_fee=Decimal("1.50")), prices("0.10")]
    measured = Heartbeat(
        allocatable=shape(cpu="4"),
        free=shape(cpu="3"),
        offloaded=shape(cpu="500m"),
        observed_at=datetime(2026, 1, 2, tzinfo=UTC),
        agent_version="1.2",
    )
    first = await each_place.opened()
    await first.put_cluster(whole)
    await first.set_prices("turin-1", lists)
    await first.heartbeat("turin-1", measured)
    before = await first.cluster("turin-1")
    await first.close()
    second = await each_place.opened()
    assert await second.cluster("turin-1") == before
    assert before.spec == whole
    assert before.free == measured.free
    assert before.last_heartbeat == datetime.fromtimestamp(NOON, UTC)
    assert list(await second.prices("turin-1")) == lists


async def test_an_edit_that_did_not_see_the_last_one_is_refused(discovery: Discovery) -> None:
    first = await discovery.put_cluster(spec("a"))
    second = await discovery.put_cluster(spec("a", cordoned=True), revision=first.revision)
    assert second.revision > first.revision
    with pytest.raises(ConflictError, match=f"it has revision {second.revision} now, not {first.revision}"):
        await discovery.put_cluster(spec("a"), revision=first.revision)
    with pytest.raises(ConflictError, match="it is not there any more"):
        await discovery.put_cluster(spec("b"), revision=1)
    assert (await discovery.cluster("a")).state is ClusterState.CORDONED


async def test_a_revision_is_never_used_again_not_even_by_a_cluster_that_was_deleted(discovery: Discovery) -> None:
    first = await discovery.put_cluster(spec("a"))
    await discovery.delete_cluster("a")
    assert (await discovery.put_cluster(spec("a"))).revision > first.revision


async def test_heartbeats_and_prices_do_not_disturb_who_edits(discovery: Discovery) -> None:
    first = await discovery.put_cluster(spec("a"))
    await discovery.heartbeat("a", beat(cpu="4"))
    await discovery.set_prices("a", [prices()])
    assert (await discovery.put_cluster(spec("a"), revision=first.revision)).revision > first.revision
    assert len(await discovery.prices("a")) == 1
    assert (await discovery.cluster("a")).last_heartbeat is not None


async def test_clusters_are_listed_by_id_and_selected_by_labels_and_state(place: Place) -> None:
    discovery = await place.opened()
    for id_, zone in (("c", "x"), ("a", "y"), ("b", "x")):
        await discovery.put_cluster(spec(id_, labels={"zone": zone}))
    await discovery.heartbeat("b", beat(cpu="1"))
    place.clock.now += STALE_AFTER
    assert [one.spec.id for one in await discovery.clusters()] == ["a", "b", "c"]
    assert [one.spec.id for one in await discovery.clusters(selector="zone=x")] == ["b", "c"]
    assert [one.spec.id for one in await discovery.clusters(state=ClusterState.STALE)] == ["b"]


async def test_a_cluster_whose_agent_is_silent_is_stale_until_it_speaks_again(place: Place) -> None:
    """By the server's own clock, at the moment of reading."""
    discovery = await place.opened()
    await discovery.put_cluster(spec("a", capacity={}))
    assert (await discovery.cluster("a")).state is ClusterState.READY
    await discovery.heartbeat("a", beat(cpu="8"))
    need = Need(resources=shape(cpu="1"))
    await discovery.set_prices("a", [prices()])
    assert [one.cluster for one in await discovery.search(need)] == ["a"]
    place.clock.now += STALE_AFTER
    assert (await discovery.cluster("a")).state is ClusterState.STALE
    assert await discovery.search(need) == []
    assert await discovery.why_not(need) == {"a": "its agent is silent"}
    with pytest.raises(OutOfStockError, match="its agent is silent"):
        await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
    await discovery.heartbeat("a", beat(cpu="8"))
    assert (await discovery.cluster("a")).state is ClusterState.READY


async def test_many_heartbeats_at_once_are_each_answered(discovery: Discovery) -> None:
    for number in range(20):
        await discovery.put_cluster(spec(f"c{number}"))
    ids = [f"c{number}" for number in range(22)]
    results = await asyncio.gather(
        *(discovery.heartbeat(id_, beat(cpu=id_[1:])) for id_ in ids), return_exceptions=True
    )
    assert results[:20] == [None] * 20
    assert all(isinstance(one, NotFoundError) for one in results[20:])
    assert (await discovery.cluster("c7")).free == shape(cpu="7")
    twice = await asyncio.gather(discovery.heartbeat("c1", beat(cpu="50")), discovery.heartbeat("c1", beat(cpu="60")))
    assert list(twice) == [None, None]
    assert (await discovery.cluster("c1")).free == shape(cpu="60")


async def test_a_price_that_ends_takes_the_cluster_out_of_the_offers(place: Place) -> None:
    discovery = await place.opened()
    await discovery.put_cluster(spec("a"))
    await discovery.put_cluster(spec("b"))
    await discovery.set_prices("a", [prices("1", valid_to=datetime.fromtimestamp(NOON + 60, UTC))])
    await discovery.set_prices("b", [prices("2")])
    need = Need(resources=shape(cpu="1"))
    assert [one.cluster for one in await discovery.search(need)] == ["a", "b"]
    place.clock.now += 60
    assert [one.cluster for one in await discovery.search(need)] == ["b"]
    assert "its price ended" in (await discovery.why_not(need))["a"]


async def test_a_reservation_is_held_confirmed_and_released(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a"))
    held = await discovery.reserve("a", shape(cpu="6"), owner="us/m-1", seconds=60)
    assert (held.state, held.expires_at) == (State.HELD, datetime.fromtimestamp(NOON + 60, UTC))
    assert await discovery.reservations("us/") == [held]
    assert (await discovery.cluster("a")).reserved == shape(cpu="6")
    with pytest.raises(OutOfStockError, match="it has 2 cpu left, and 3 are needed"):
        await discovery.reserve("a", shape(cpu="3"), owner="us/m-2", seconds=60)
    confirmed = await discovery.confirm(held.id)
    assert (confirmed.state, confirmed.expires_at) == (State.CONFIRMED, None)
    assert await discovery.confirm(held.id) == confirmed
    await discovery.release(held.id)
    await discovery.release(held.id)
    assert await discovery.reservations("") == []
    with pytest.raises(NotFoundError, match="has expired, or was released"):
        await discovery.confirm(held.id)
    await discovery.reserve("a", shape(cpu="8"), owner="us/m-2", seconds=60)


async def test_the_same_owner_and_cluster_gives_the_same_reservation(each_place: Place) -> None:
    discovery = await each_place.opened()
    await discovery.put_cluster(spec("a"))
    await discovery.put_cluster(spec("b"))
    first = await discovery.reserve("a", shape(cpu="6"), owner="us/m", seconds=60)
    each_place.clock.now += 30
    again = await discovery.reserve("a", shape(cpu="6000m"), owner="us/m", seconds=60)
    assert again.id == first.id
    assert again.expires_at == datetime.fromtimestamp(NOON + 90, UTC)
    with pytest.raises(AlreadyExistsError, match=first.id):
        await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
    other = await discovery.reserve("b", shape(cpu="6"), owner="us/m", seconds=60)
    assert other.id != first.id
    confirmed = await discovery.confirm(first.id)
    assert await discovery.reserve("a", shape(cpu="6"), owner="us/m", seconds=60) == confirmed
    assert (await discovery.cluster("a")).nodes == 1


async def test_a_hold_that_is_not_confirmed_in_time_makes_room(each_place: Place) -> None:
    discovery = await each_place.opened()
    await discovery.put_cluster(spec("a"))
    held = await discovery.reserve("a", shape(cpu="8"), owner="us/m-1", seconds=60)
    each_place.clock.now += 59
    with pytest.raises(OutOfStockError):
        await discovery.reserve("a", shape(cpu="1"), owner="us/m-2", seconds=60)
    each_place.clock.now += 1
    assert await discovery.reservations("") == []
    assert (await discovery.cluster("a")).reserved == {}
    with pytest.raises(NotFoundError):
        await discovery.confirm(held.id)
    await discovery.reserve("a", shape(cpu="8"), owner="us/m-2", seconds=60)
    each_place.clock.now += 60
    assert await discovery.expire() == 1
    assert await discovery.expire() == 0


async def test_no_more_nodes_than_the_cluster_allows(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a", max_nodes=1))
    await discovery.reserve("a", shape(cpu="1"), owner="us/m-1", seconds=60)
    with pytest.raises(OutOfStockError, match="it has 1 of at most 1 nodes"):
        await discovery.reserve("a", shape(cpu="1"), owner="us/m-2", seconds=60)


async def test_nothing_is_reserved_in_a_cluster_that_is_cordoned_or_unknown(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a", cordoned=True))
    with pytest.raises(OutOfStockError, match="it is cordoned"):
        await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
    with pytest.raises(NotFoundError, match="there is no cluster b"):
        await discovery.reserve("b", shape(cpu="1"), owner="us/m", seconds=60)


async def test_a_cluster_with_reservations_is_deleted_by_force_only(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a"))
    held = await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=60)
    with pytest.raises(PreconditionError, match="has 1 reservations"):
        await discovery.delete_cluster("a")
    await discovery.delete_cluster("a", force=True)
    assert await discovery.reservations("") == []
    with pytest.raises(NotFoundError):
        await discovery.confirm(held.id)
    with pytest.raises(NotFoundError):
        await discovery.delete_cluster("a", force=True)
    with pytest.raises(NotFoundError):
        await discovery.heartbeat("a", beat(cpu="1"))


async def test_reservations_are_found_by_the_beginning_of_their_owner(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a"))
    for owner in ("us/m-2", "us/m-1", "them/m-1", "u_/x", "US/m"):
        await discovery.reserve("a", shape(cpu="1"), owner=owner, seconds=60)
    assert [one.owner for one in await discovery.reservations("us/")] == ["us/m-1", "us/m-2"]
    assert [one.owner for one in await discovery.reservations("u_")] == ["u_/x"]
    assert len(await discovery.reservations("")) == 5


async def test_what_another_server_did_is_seen_at_the_next_look(each_place: Place) -> None:
    """Two processes on one PostgreSQL, or on one SQLite file."""
    one, other = await each_place.opened(), await each_place.opened()
    await one.put_cluster(spec("a"))
    await one.put_cluster(spec("b"))
    await one.set_prices("a", [prices("1")])
    await one.heartbeat("a", beat(cpu="4", memory="8Gi"))
    assert await other.clusters() == await one.clusters()
    held = await other.reserve("a", shape(cpu="3"), owner="us/m", seconds=60)
    assert await one.reservations("") == [held]
    assert (await one.cluster("a")).reserved == {"cpu": Quantity(3)}
    await one.heartbeat("a", beat(cpu="3", memory="8Gi"))
    await other.heartbeat("b", beat(cpu="2"))
    await one.delete_cluster("a", force=True)
    assert [found.spec.id for found in await other.clusters()] == ["b"]
    assert await other.reservations("") == []
    assert (await one.cluster("b")).free == shape(cpu="2")
    await other.put_cluster(spec("a"))
    assert [found.spec.id for found in await one.clusters()] == ["a", "b"]


@pytest.mark.parametrize(
    "wrong",
    [
        spec("Upper"),
        spec(""),
        spec("a", labels={"no key": "x"}),
        spec("a", labels={"k": "no value "}),
        spec("a", capacity=shape(cpu="-1")),
        spec("a", capacity={"no name\0": Quantity(1)}),
        spec("a", max_nodes=-1),
        spec("a", display_name="a\0b"),
        spec("a", display_name="\ud800"),
        spec("a", resource_slice_class=""),
        spec("a", network=Network(mode=NetworkMode.ADDRESS_OVERRIDE)),
        spec("a", network=Network(port=70000)),
    ],
)
async def test_a_declaration_that_makes_no_sense_is_refused(sqlite_place: Place, wrong: ClusterSpec) -> None:
    discovery = await sqlite_place.opened()
    with pytest.raises(InvalidArgumentError):
        await discovery.put_cluster(wrong)
    assert await discovery.clusters() == []


async def test_other_input_that_makes_no_sense_is_refused(sqlite_place: Place) -> None:
    discovery = await sqlite_place.opened()
    await discovery.put_cluster(spec("a"))
    later, sooner = datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    for wrong in (
        prices(currency="euro"),
        prices("-1"),
        prices("NaN"),
        prices("1e30"),
        prices("1e-30"),
        prices(valid_from=later, valid_to=sooner),
    ):
        with pytest.raises(InvalidArgumentError):
            await discovery.set_prices("a", [wrong])
    for seconds in (0.0, -1.0, float("nan"), 1e9):
        with pytest.raises(InvalidArgumentError, match="is held for"):
            await discovery.reserve("a", shape(cpu="1"), owner="us/m", seconds=seconds)
    for resources, owner in (({}, "us/m"), (shape(cpu="-1"), "us/m"), (shape(cpu="1"), ""), (shape(cpu="1"), "a\0")):
        with pytest.raises(InvalidArgumentError):
            await discovery.reserve("a", resources, owner=owner, seconds=60)
    with pytest.raises(InvalidArgumentError):
        await discovery.heartbeat("a", beat(cpu="-1"))


async def test_a_discovery_that_is_closed_says_so(discovery: Discovery) -> None:
    await discovery.put_cluster(spec("a"))
    await discovery.close()
    with pytest.raises(UnavailableError):
        await discovery.clusters()
    with pytest.raises(UnavailableError):
        await discovery.heartbeat("a", beat(cpu="1"))
    await discovery.close()


async def test_of_very_many_that_do_not_fit_some_are_told_and_first_those_that_are_named(
    discovery: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_AT_A_TIME", 2)
    monkeypatch.setattr(service, "_MOST_REASONS", 3)
    for number in range(6):
        await discovery.put_cluster(spec(f"c-{number}", capacity=shape(cpu="1")))
    need = Need(resources=shape(cpu="2"), clusters=("c-5",), strategy=Strategy.FIRST_FIT)
    told = await discovery.why_not(need)
    assert list(told) == ["c-5", "c-0", "c-1"]
    assert told["c-5"] == "it has 1 cpu left, and 2 are needed"
