"""What can still be had of a cluster, and what it costs: nothing counted twice, nothing given twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.discovery.model import ClusterState, Heartbeat, Need, Reservation, ReservationState
from cloudgraft.discovery.search.offers import Terms
from cloudgraft.discovery.search.prices import asking_at
from cloudgraft.discovery.search.reservations import (
    Record,
    cluster_of,
    lack_of,
    nanos_of,
    quantity_of,
    state_of,
    stock_of,
)
from cloudgraft.sdk.quantity import Quantity
from tests.discovery.core.markets import NOON, STALE_AFTER, beat, prices, shape, spec


def _held(cpu: str, *, seconds: float | None = None) -> Reservation:
    return Reservation(
        id=f"r-{cpu}",
        cluster="a",
        owner=f"us/{cpu}",
        resources=shape(cpu=cpu),
        state=ReservationState.CONFIRMED if seconds is None else ReservationState.HELD,
        expires_at=None if seconds is None else datetime.fromtimestamp(NOON + seconds, UTC),
    )


def _record(*held: Reservation, capacity: str = "", free: str = "", offloaded: str = "0") -> Record:
    measured = Heartbeat(allocatable=shape(cpu="64"), free=shape(cpu=free or "0"), offloaded=shape(cpu=offloaded))
    return Record(
        spec=spec(capacity=shape(cpu=capacity) if capacity else {}),
        revision=1,
        beat=measured if free else None,
        beat_at=NOON if free else None,
        reservations=held,
    )


def _cpu(record: Record, now: float = NOON) -> Quantity:
    return quantity_of(stock_of(record, now).available["cpu"])


def test_without_an_agent_the_declared_capacity_counts_less_all_reservations() -> None:
    assert _cpu(_record(_held("2"), capacity="8")) == Quantity("6")


def test_a_reservation_counts_in_full_while_its_node_is_empty() -> None:
    assert _cpu(_record(_held("4"), free="16")) == Quantity("12")


def test_pods_on_a_reserved_node_are_not_counted_twice() -> None:
    """The node's quota of 4 is used up to 3: 13 are free, and 1 of them may still be used by the node."""
    assert _cpu(_record(_held("4"), free="13", offloaded="3")) == Quantity("12")


def test_pods_of_somebody_who_reserved_nothing_never_make_room() -> None:
    assert _cpu(_record(_held("4"), free="10", offloaded="6")) == Quantity("10")


def test_the_declared_capacity_is_the_most_that_is_ever_shared() -> None:
    assert _cpu(_record(_held("6"), capacity="8", free="40")) == Quantity("2")
    assert _cpu(_record(capacity="8", free="40", offloaded="7")) == Quantity("1")


def test_a_hold_that_has_expired_counts_no_more() -> None:
    record = _record(_held("2", seconds=30), _held("1"), capacity="8")
    assert _cpu(record, NOON + 29.9) == Quantity("5")
    assert _cpu(record, NOON + 30) == Quantity("7")
    assert stock_of(record, NOON).until == NOON + 30


def test_what_is_told_of_a_cluster_adds_up_to_what_can_be_had() -> None:
    record = _record(_held("4"), free="13", offloaded="3")
    told = cluster_of(record, NOON, STALE_AFTER)
    assert told.free["cpu"] - told.reserved["cpu"] == _cpu(record)
    assert told.nodes == 1


def test_the_state_is_by_the_age_of_the_heartbeat_and_an_operator_comes_first() -> None:
    assert state_of(_record(capacity="8"), NOON + 1e6, STALE_AFTER) is ClusterState.READY
    assert state_of(_record(free="8"), NOON + STALE_AFTER - 0.1, STALE_AFTER) is ClusterState.READY
    assert state_of(_record(free="8"), NOON + STALE_AFTER, STALE_AFTER) is ClusterState.STALE
    cordoned = Record(spec=spec(cordoned=True), revision=1, beat=beat(cpu="1"), beat_at=0.0)
    assert state_of(cordoned, NOON, STALE_AFTER) is ClusterState.CORDONED


def test_a_lack_is_told_in_words() -> None:
    stock = stock_of(_record(_held("6"), capacity="8"), NOON)
    assert lack_of(stock, spec(), nanos_of(shape(cpu="2"))) == ""
    assert lack_of(stock, spec(), nanos_of(shape(cpu="2500m"))) == "it has 2 cpu left, and 2500m are needed"
    assert lack_of(stock, spec(), nanos_of(shape(gpu="1"))) == "it shares no gpu"
    assert lack_of(stock, spec(), nanos_of(shape(gpu="0"))) == ""
    assert lack_of(stock, spec(max_nodes=1), {}) == "it has 1 of at most 1 nodes"


@given(st.integers(0, 10**24), st.sampled_from(["cpu", "memory"]))
def test_an_amount_survives_the_way_to_whole_numbers_and_back(nanos: int, name: str) -> None:
    assert nanos_of({name: quantity_of(nanos, like=name)}) == {name: nanos}


_AT = datetime.fromtimestamp(NOON, UTC)
_HOUR = timedelta(hours=1)


def test_of_several_prices_the_one_that_is_valid_now_and_began_last_counts() -> None:
    lists = [
        prices("1", valid_from=_AT - 2 * _HOUR),
        prices("2", valid_from=_AT, valid_to=_AT + _HOUR),
        prices("3", valid_from=_AT + _HOUR),
        prices("9"),
    ]
    found = [asking_at(lists, NOON + seconds) for seconds in (-1.0, 0.0, 3599.0, 3600.0)]
    assert [one.prices and one.prices.unit["cpu"] for one in found] == [1, 2, 2, 3]
    assert [one.until for one in found] == [NOON, NOON + 3600, NOON + 3600, float("inf")]


def test_without_a_valid_price_it_is_told_why() -> None:
    assert asking_at([], NOON).why_not == "it has no price"
    ended = asking_at([prices(valid_to=_AT - _HOUR), prices(valid_to=_AT)], NOON)
    assert ended.prices is None
    assert ended.why_not == "its price ended at 2027-01-15T08:00:00Z"
    assert "begins only at 2027-01-15T09:00:00Z" in asking_at([prices(valid_from=_AT + _HOUR)], NOON).why_not


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpu": "1500m"}, "0.175"),
        ({"memory": "512Mi"}, "0.105"),
        ({"cpu": "2", "memory": "4Gi", "pods": "10"}, "0.25"),
        ({"nvidia.com/gpu": "1"}, "2.6"),
        ({"ephemeral-storage": "20Gi"}, "0.12"),
    ],
)
def test_a_shape_costs_the_fixed_part_and_each_unit(asked: dict[str, str], expected: str) -> None:
    units = {"cpu": "0.05", "memory": "0.01", "pods": "0.001", "nvidia.com/gpu": "2.5", "ephemeral-storage": "0.001"}
    asks = prices(unit={name: Decimal(price) for name, price in units.items()}, fixed_per_node=Decimal("0.1"))
    terms = Terms(Need(resources=shape(**asked), horizon_hours=Decimal(1)))
    assert terms.cost(asks, peered=True) == Decimal(expected)
