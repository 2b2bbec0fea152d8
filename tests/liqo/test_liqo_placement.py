"""Whom to ask, in which order, and what is told: pure."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from cloudgraft.discovery.model import (
    Cluster,
    ClusterSpec,
    ClusterState,
    Offer,
    Reservation,
    ReservationState,
    Strategy,
)
from cloudgraft.liqo.options import DiscoveryOptions, LiqoOptions, MachineSettings
from cloudgraft.liqo.placement import CoolDowns, candidates, need_for, none_left
from cloudgraft.liqo.shapes import TAINT, ShapeName, all_shapes, is_full, parse_shape, shared_by
from cloudgraft.liqo.slices import Answer, answer_of
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity

CAPACITY = {"cpu": Quantity("8"), "memory": Quantity("16Gi")}
OPTIONS = LiqoOptions(
    discovery=DiscoveryOptions(address="https://x"),
    sizes={"S": {"cpu": 2, "memory": "4Gi"}, "L": {"cpu": 1.5, "memory": "8Gi", "nvidia.com/gpu": 1}},
    exclude=["bad"],
    selector="country=italy",
    currency="EUR",
    price_cap=Decimal(5),
)


def _offer(cluster: str) -> Offer:
    return Offer(
        cluster=cluster,
        price_per_hour=Decimal(1),
        currency="EUR",
        peered=False,
        headroom=0.5,
        score=0.0,
        reasons=(),
    )


def _cluster(name: str, state: ClusterState = ClusterState.READY) -> Cluster:
    return Cluster(
        spec=ClusterSpec(id=name, capacity=CAPACITY, resource_slice_class="special"),
        state=state,
        free=CAPACITY,
        reserved={},
        nodes=0,
        last_heartbeat=None,
        revision=1,
    )


def _held(cluster: str) -> Reservation:
    return Reservation(
        id=f"r-{cluster}",
        cluster=cluster,
        owner="c/n",
        resources=CAPACITY,
        state=ReservationState.HELD,
        expires_at=None,
    )


def test_what_is_held_already_goes_first_and_what_cools_down_is_left_out() -> None:
    chosen = candidates(
        [_offer("a"), _offer("b"), _offer("c")], [_held("c")], [_cluster("c"), _cluster("a")], {"a": "it failed"}
    )
    assert [(one.cluster, one.held is not None) for one in chosen] == [("c", True), ("b", False)]
    assert chosen[0].slice_class == "special"


@pytest.mark.parametrize("known", [[], [_cluster("c", ClusterState.CORDONED)]])
def test_what_is_held_by_a_cluster_that_is_not_ready_does_not_count(known: list[Cluster]) -> None:
    assert [one.cluster for one in candidates([_offer("a")], [_held("c")], known, {})] == ["a"]


def test_a_groups_words_count_more_than_its_clouds() -> None:
    settings = MachineSettings(
        shape="S@a", strategy=Strategy.FIRST_FIT, selector="", price_cap=Decimal(1), exclude=["worse"]
    )
    need = need_for(CAPACITY, ShapeName(size="S", cluster="a"), settings, OPTIONS, {"z", "a"})
    assert (need.strategy, need.label_selector, need.price_cap) == (Strategy.FIRST_FIT, "", Decimal(1))
    assert (need.clusters, need.exclude, need.peered) == (("a",), ("bad", "worse"), ("a", "z"))
    plain = need_for(CAPACITY, ShapeName(size="S"), MachineSettings(shape="S"), OPTIONS, ())
    assert (plain.label_selector, plain.price_cap, plain.clusters) == ("country=italy", Decimal(5), ())


def test_a_cool_down_ends() -> None:
    cooling = CoolDowns(60.0)
    cooling.cool("a", "it was dead", 100.0)
    assert cooling.at(130.0) == {"a": "failed lately, and is asked again in 30 s: it was dead"}
    assert cooling.at(160.0) == {}


def test_all_reasons_are_told_once_each() -> None:
    told = none_left("S", {"a": "it denied the slice"}, {"a": "it cools down"}, {"b": "it is too dear"})
    assert told == "no remote cluster can give S: a: it denied the slice; b: it is too dear"
    assert "knows none" in none_left("S", {}, {})


def test_bug_5_shapes_carry_liqos_taint_and_labels() -> None:
    """Pods that may not go there must not cause a node."""
    shapes = {shape.name: shape for shape in all_shapes(OPTIONS.amounts(), [_cluster("a")])}
    assert sorted(shapes) == ["L", "L@a", "S", "S@a", "all@a"]
    assert all(shape.taints == (TAINT,) for shape in shapes.values())
    assert all(shape.labels["liqo.io/type"] == "virtual-node" for shape in shapes.values())
    assert shapes["S@a"].labels["liqo.io/remote-cluster-id"] == "a"
    assert "liqo.io/remote-cluster-id" not in shapes["S"].labels
    assert shapes["L"].capacity["cpu"] == Quantity("1500m")
    assert shapes["all@a"].capacity == CAPACITY


def test_a_cluster_with_less_free_than_declared_shares_less() -> None:
    one = replace(_cluster("a"), free={"cpu": Quantity("7500m"), "memory": Quantity("20Gi")})
    assert shared_by(one, is_used_by_us=False) == {"cpu": Quantity("7500m"), "memory": Quantity("16Gi")}
    assert shared_by(replace(one, nodes=1), is_used_by_us=True) == CAPACITY
    others = replace(one, nodes=1, reserved={"cpu": Quantity("7")})
    assert shared_by(others, is_used_by_us=False) == {"cpu": Quantity("500m"), "memory": Quantity("16Gi")}


def test_a_cluster_is_full_only_while_it_would_give_more_if_it_had_more() -> None:
    one, asked = _cluster("a"), {"cpu": Quantity(1)}
    assert not is_full(one, asked)
    assert is_full(replace(one, reserved=CAPACITY), asked)
    assert is_full(replace(one, spec=replace(one.spec, max_nodes=1), nodes=1), asked)
    assert not is_full(replace(one, state=ClusterState.STALE, reserved=CAPACITY), asked)


@pytest.mark.parametrize("name", ["", "XL", "all", "all@", "S@", "@a"])
def test_what_is_no_shape_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no shape"):
        parse_shape(name, OPTIONS.amounts())


def _status(authentication: str, resources: str, **granted: str) -> dict[str, object]:
    conditions = [{"type": "Authentication", "status": authentication}, {"type": "Resources", "status": resources}]
    return {"conditions": [one for one in conditions if one["status"]], "resources": granted}


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        ({}, Answer.NONE),
        (_status("Accepted", ""), Answer.NONE),
        (_status("", "Accepted", cpu="8", memory="16Gi"), Answer.NONE),
        (_status("Accepted", "Accepted", cpu="8", memory="16Gi", pods="110"), Answer.GRANTED),
        (_status("Accepted", "Accepted", cpu="8000m", memory="17179869184"), Answer.GRANTED),
        (_status("Accepted", "Accepted", cpu="8"), Answer.REFUSED),
        (_status("Accepted", "Accepted", cpu="7999m", memory="16Gi"), Answer.REFUSED),
        (_status("Accepted", "Denied", cpu="8", memory="16Gi"), Answer.REFUSED),
        (_status("Denied", "Accepted", cpu="8", memory="16Gi"), Answer.REFUSED),
    ],
)
def test_bug_4_status_is_believed_and_less_than_the_shape_is_a_failure(
    status: dict[str, object], answer: Answer
) -> None:
    """A node smaller than its template never holds the pods that it was made for."""
    assert answer_of(CAPACITY, status)[0] is answer
