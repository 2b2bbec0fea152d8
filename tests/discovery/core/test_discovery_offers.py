"""Which cluster: candidates, strategies, prices, reasons. All pure."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgraft.discovery.model import ClusterState, Heartbeat, Need, Offer, PriceList, Strategy
from cloudgraft.discovery.search.candidates import Candidate, candidate_of
from cloudgraft.discovery.search.offers import search, why_not
from cloudgraft.discovery.search.reservations import Record
from cloudgraft.sdk.errors import InvalidArgumentError
from tests.discovery.core.markets import NOON, STALE_AFTER, prices, shape, spec


def _cluster(
    id_: str, *lists: PriceList, free: str = "8", beat_at: float | None = None, **changes: object
) -> Candidate:
    measured = None
    if beat_at is not None:
        measured = Heartbeat(allocatable=shape(cpu="8"), free=shape(cpu=free))
    record = Record(
        spec=spec(id_, **{"capacity": shape(cpu=free), **changes}),
        revision=1,
        prices=lists,
        beat=measured,
        beat_at=beat_at,
    )
    return candidate_of(record, NOON, STALE_AFTER)


def _need(**changes: object) -> Need:
    return Need(**{"resources": shape(cpu="2"), **changes})  # type: ignore[arg-type]  # a test knows what it asks for


def _ids(clusters: list[Candidate], **changes: object) -> list[str]:
    return [offer.cluster for offer in search(clusters, _need(**changes))]


def test_the_cheapest_comes_first_and_ties_go_by_id() -> None:
    clusters = [_cluster("c", prices("1")), _cluster("b", prices("2")), _cluster("a", prices("2"))]
    offers = search(clusters, _need())
    assert [(offer.cluster, offer.price_per_hour, offer.currency) for offer in offers] == [
        ("c", Decimal(2), "EUR"),
        ("a", Decimal(4), "EUR"),
        ("b", Decimal(4), "EUR"),
    ]
    assert [offer.score for offer in offers] == [1.0, 0.5, 0.5]
    assert offers[0].reasons[0] == "the best of 3 by cheapest"
    assert "2 EUR an hour: cpu 2" in offers[0].reasons


def test_a_peering_fee_is_spread_over_the_horizon_unless_it_was_paid() -> None:
    """A cluster that is peered may be the cheaper one although it asks more."""
    clusters = [
        _cluster("far", prices("0.1", peering_fee=Decimal(12))),
        _cluster("near", prices("0.2", peering_fee=Decimal(12))),
    ]
    assert _ids(clusters) == ["far", "near"]
    offers = search(clusters, _need(peered=["near"]))
    assert [(one.cluster, one.price_per_hour, one.peered) for one in offers] == [
        ("near", Decimal("0.4"), True),
        ("far", Decimal("0.7"), False),
    ]
    assert search(clusters, _need(horizon_hours=Decimal(6), clusters=["far"]))[0].price_per_hour == Decimal("2.2")


def test_first_fit_goes_by_id_and_most_headroom_by_what_is_left() -> None:
    clusters = [_cluster("b", free="4"), _cluster("a", free="8"), _cluster("c", free="80")]
    assert _ids(clusters, strategy=Strategy.FIRST_FIT) == ["a", "b", "c"]
    offers = search(clusters, _need(strategy=Strategy.MOST_HEADROOM))
    assert [(one.cluster, one.headroom, one.score) for one in offers] == [
        ("c", 0.975, 0.975),
        ("a", 0.75, 0.75),
        ("b", 0.5, 0.5),
    ]


def test_prefer_peered_takes_the_cheapest_of_those_and_then_the_cheapest_of_the_others() -> None:
    clusters = [_cluster(id_, prices(cpu)) for id_, cpu in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))]
    assert _ids(clusters, strategy=Strategy.PREFER_PEERED, peered=["d", "c"]) == ["c", "d", "a", "b"]


def test_a_weight_changes_the_order_but_not_the_price_nor_what_the_cap_is_held_against() -> None:
    clusters = [_cluster("a", prices("1")), _cluster("b", prices("2"))]
    offers = search(clusters, _need(weights={"a": Decimal(3)}, price_cap=Decimal(4)))
    assert [(one.cluster, one.price_per_hour) for one in offers] == [("b", Decimal(4)), ("a", Decimal(2))]
    assert "ranked as 6, by its weight of 3" in offers[1].reasons


def test_two_currencies_are_never_compared() -> None:
    clusters = [
        _cluster("a", prices("5", currency="USD")),
        _cluster("b", prices("1", currency="USD")),
        _cluster("c", prices("0.01", currency="CHF")),
    ]
    assert _ids(clusters) == ["b", "a", "c"]
    assert _ids(clusters, currency="CHF") == ["c"]
    assert why_not(clusters, _need(currency="CHF"))["a"] == "it asks in USD, not in CHF"
    assert [one.score for one in search(clusters, _need())] == [1.0, 0.2, 1.0]


def test_without_a_valid_price_a_cluster_is_no_candidate_where_price_decides() -> None:
    ended = prices("0.01", valid_to=datetime.fromtimestamp(NOON - 1, UTC))
    clusters = [_cluster("a", ended), _cluster("b"), _cluster("c", prices("1"))]
    for decides in ({}, {"strategy": Strategy.FIRST_FIT, "price_cap": Decimal(9)}, {"currency": "EUR"}):
        assert _ids(clusters, **decides) == ["c"]
        reasons = why_not(clusters, _need(**decides))
        assert reasons == {"a": "its price ended at 2027-01-15T07:59:59Z", "b": "it has no price"}
    assert _ids(clusters, strategy=Strategy.FIRST_FIT) == ["a", "b", "c"]
    assert _ids(clusters, strategy=Strategy.PREFER_PEERED) == ["c", "a", "b"]
    assert search(clusters, _need(strategy=Strategy.FIRST_FIT))[1].price_per_hour is None


def test_a_price_that_is_just_the_cap_is_taken() -> None:
    clusters = [_cluster("a", prices("1", peering_fee=Decimal(24))), _cluster("b", prices("1.5001"))]
    assert _ids(clusters, price_cap=Decimal(3)) == ["a"]
    assert why_not(clusters, _need(price_cap=Decimal(3))) == {"b": "it asks 3.0002 EUR an hour, above the cap of 3"}


def test_each_cluster_that_cannot_meet_a_need_is_told_with_the_reason() -> None:
    paid = prices("1")
    clusters = [
        _cluster("cordoned", paid, cordoned=True),
        _cluster("excluded", paid),
        _cluster("full", paid, max_nodes=0),
        _cluster("labelled", paid, labels={"country": "france"}),
        _cluster("silent", paid, beat_at=NOON - STALE_AFTER),
        _cluster("small", paid, free="1"),
        _cluster("good", paid, labels={"country": "italy"}),
    ]
    need = _need(label_selector="country!=france", exclude=["excluded"])
    assert [offer.cluster for offer in search(clusters, need)] == ["good"]
    assert why_not(clusters, need) == {
        "cordoned": "it is cordoned",
        "excluded": "it is excluded",
        "full": "it has 0 of at most 0 nodes",
        "labelled": "its labels do not fit",
        "silent": "its agent is silent",
        "small": "it has 1 cpu left, and 2 are needed",
    }
    assert why_not(clusters, _need(clusters=["good"]))["small"] == "it is not among the clusters that were asked for"
    assert clusters[4].state is ClusterState.STALE


@pytest.mark.parametrize(
    "wrong",
    [
        {"resources": {}},
        {"resources": shape(cpu="-1")},
        {"horizon_hours": Decimal(0)},
        {"horizon_hours": Decimal("NaN")},
        {"limit": 0},
        {"limit": 1001},
        {"weights": {"a": Decimal(0)}},
        {"price_cap": Decimal(-1)},
        {"label_selector": "=="},
    ],
)
def test_a_need_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError):
        search([], _need(**wrong))


_LISTS = st.builds(
    prices,
    st.sampled_from(["0", "0.5", "1", "2"]),
    currency=st.sampled_from(["EUR", "USD"]),
    peering_fee=st.sampled_from([Decimal(0), Decimal(10)]),
)
_CLUSTERS = st.lists(
    st.builds(
        lambda number, lists, free, labels, **changes: _cluster(
            f"c{number}", *lists, free=free, labels={"zone": labels}, **changes
        ),
        st.integers(0, 99),
        st.lists(_LISTS, max_size=1),
        st.sampled_from(["1", "2", "8"]),
        st.sampled_from(["a", "b"]),
        cordoned=st.booleans(),
        max_nodes=st.sampled_from([None, 0, 1]),
        beat_at=st.sampled_from([None, NOON, NOON - 1000]),
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)
_NEEDS = st.builds(
    _need,
    strategy=st.sampled_from(Strategy),
    label_selector=st.sampled_from(["", "zone=a"]),
    price_cap=st.sampled_from([None, Decimal(2)]),
    currency=st.sampled_from(["", "EUR"]),
    peered=st.lists(st.integers(0, 99).map("c{}".format), max_size=5),
    weights=st.sampled_from([{}, {"c1": Decimal(2)}]),
)


@settings(max_examples=40)
@given(_CLUSTERS, _NEEDS)
def test_every_cluster_is_offered_or_told_why_not_and_never_both(clusters: list[Candidate], need: Need) -> None:
    offers = search(clusters, need)
    reasons = why_not(clusters, need)
    assert {offer.cluster for offer in offers} | set(reasons) == {one.id for one in clusters}
    assert not {offer.cluster for offer in offers} & set(reasons)
    assert all(0 <= offer.score <= 1 and 0 <= offer.headroom <= 1 and all(offer.reasons) for offer in offers)


@settings(max_examples=40)
@given(_CLUSTERS, _NEEDS, st.randoms())
def test_the_order_does_not_depend_on_the_order_of_the_clusters(
    clusters: list[Candidate], need: Need, random: object
) -> None:
    before = search(clusters, need)
    random.shuffle(clusters)  # type: ignore[attr-defined]  # hypothesis hides the type
    assert search(clusters, need) == before
    assert search(clusters, _limited(need))[:3] == before[:3]


@settings(max_examples=40)
@given(_CLUSTERS)
def test_within_a_currency_the_cheapest_never_comes_after_a_dearer_one(clusters: list[Candidate]) -> None:
    offers = search(clusters, _need())
    for currency in ("EUR", "USD"):
        asked = [one.price_per_hour for one in offers if one.currency == currency and one.price_per_hour is not None]
        assert asked == sorted(asked)


def _limited(need: Need) -> Need:
    return _need(
        strategy=need.strategy,
        label_selector=need.label_selector,
        price_cap=need.price_cap,
        currency=need.currency,
        peered=need.peered,
        weights=need.weights,
        limit=3,
    )


def test_no_more_offers_than_asked_for() -> None:
    found: list[Offer] = search([_cluster(f"c{number}", prices("1")) for number in range(9)], _need(limit=2))
    assert [one.cluster for one in found] == ["c0", "c1"]
