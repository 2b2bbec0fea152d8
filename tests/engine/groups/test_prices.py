"""What groups, nodes and pods cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.prices import (
    ReferencePrice,
    common_currency,
    group_price,
    node_price,
    pod_price,
    reference_price,
)
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.sdk import InvalidArgumentError, NodeTemplate, Price, Quantity
from cloudgraft.sdk.template_nodes import group_of_template

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = NOON + timedelta(hours=1)


def _euros(amount: str) -> Money:
    return Money(amount=Decimal(amount), currency="EUR")


def _group(price: str | None, **allocatable: str) -> GroupSpec:
    amounts = {name.replace("_", "/"): Quantity(amount) for name, amount in allocatable.items()}
    return GroupSpec(
        id="g",
        cloud="c",
        min_size=0,
        max_size=1,
        template=NodeTemplate(capacity=amounts, allocatable=amounts),
        price=_euros(price) if price else None,
    )


# -- groups and nodes -------------------------------------------------------------------------------------------------


def test_a_groups_price_is_the_configured_one_else_its_shapes() -> None:
    prices = [
        Price(shape="small", hourly=Decimal("0.02"), currency="EUR"),
        Price(shape="given-away", hourly=Decimal(0), currency="EUR"),
    ]
    assert group_price(_euros("0.05"), "small", prices) == _euros("0.05")
    assert group_price(None, "small", prices) == _euros("0.02")
    assert group_price(None, "large", prices) is None
    assert group_price(None, "given-away", prices) is None  # R84: a price is more than zero


def test_one_currency_is_for_all() -> None:
    """R84: the autoscaler compares bare numbers."""
    assert common_currency({}) == ""
    assert common_currency({"a": _euros("1"), "b": _euros("2")}) == "EUR"
    with pytest.raises(InvalidArgumentError, match=r"more than one currency: EUR \(a\), USD \(c\); give"):
        common_currency({"a": _euros("1"), "b": _euros("2"), "c": Money(amount=Decimal(1), currency="USD")})


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("template-node-for-lab-3141592653589793", "lab"),
        ("template-node-for-lab-small-3141592653589793", "lab-small"),
        ("template-node-for-lab-small-3141592653589793-upcoming-2", "lab-small"),
        ("template-node-for-lab-large-31415", "lab"),  # no such group: the longest that is known
        ("template-node-for-other-31415", None),
        ("template-node-for-lab", None),
        ("lab-31415", None),
        ("", None),
    ],
)
def test_a_template_nodes_group_is_the_longest_known_id_in_its_name(name: str, group: str | None) -> None:
    """R81."""
    assert group_of_template(name, {"lab", "lab-small"}) == group


def test_the_period_counts() -> None:
    assert node_price(Decimal("0.05"), NOON, ONE) == 0.05
    assert node_price(Decimal("0.05"), NOON, NOON + timedelta(days=1)) == 1.2
    assert node_price(Decimal("0.06"), NOON, NOON + timedelta(minutes=1)) == 0.001


def test_nothing_is_free() -> None:
    """R84."""
    assert node_price(Decimal("0.05"), NOON, NOON) > 0
    assert pod_price({}, NOON, ONE, ReferencePrice(core=Fraction(1), gib=Fraction(1))) > 0


# -- pods -------------------------------------------------------------------------------------------------------------


def test_the_reference_price_is_that_of_the_cheapest_group() -> None:
    """Weights: 4 cores and 10 GiB are worth 40 GiB, 8 cores and 20 GiB are worth 80."""
    reference = reference_price(
        [_group("0.40", cpu="4", memory="10Gi"), _group("0.40", cpu="8", memory="20Gi"), _group(None, cpu="99")]
    )
    assert reference == ReferencePrice(core=Fraction(75, 2000), gib=Fraction(5, 1000))


def test_pods_that_fill_a_node_of_the_cheapest_group_cost_what_it_costs() -> None:
    group = _group("0.17", cpu="3920m", memory="7351Mi", pods="110")
    reference = reference_price([group, _group("0.60", cpu="4", memory="8Gi")])
    assert reference is not None
    half = {"cpu": Quantity("1960m"), "memory": Quantity("3763712Ki")}
    whole = pod_price(group.template.allocatable, NOON, ONE, reference)
    assert whole == 0.17
    assert pod_price(half, NOON, ONE, reference) == 0.085
    assert pod_price(half, NOON, NOON + timedelta(hours=3), reference) == 0.255


def test_a_gpu_costs_what_its_node_costs_beyond_cores_and_memory() -> None:
    plain = _group("0.40", cpu="4", memory="10Gi")
    gpus = _group("2.40", cpu="4", memory="10Gi", nvidia_gpu="2")
    reference = reference_price([plain, gpus])
    assert reference is not None
    assert reference.gpus == {"nvidia/gpu": Fraction(1)}
    assert pod_price({"nvidia/gpu": Quantity(2)}, NOON, ONE, reference) == 2.0
    assert pod_price(gpus.template.allocatable, NOON, ONE, reference) == 2.4


def test_a_gpu_has_a_price_even_where_its_node_is_cheaper_than_others() -> None:
    reference = reference_price([_group("8", cpu="4", memory="10Gi"), _group("2", cpu="4", memory="10Gi", x_gpu="1")])
    assert reference is not None
    assert reference.gpus == {"x/gpu": Fraction(1)}


def test_where_all_groups_have_gpus_half_of_a_price_is_theirs() -> None:
    group = _group("2.00", cpu="4", memory="10Gi", x_gpu="1")
    reference = reference_price([group])
    assert reference is not None
    assert reference.gpus == {"x/gpu": Fraction(1)}
    assert pod_price(group.template.allocatable, NOON, ONE, reference) == 2.0


def test_without_any_price_there_is_no_reference() -> None:
    assert reference_price([]) is None
    assert reference_price([_group(None, cpu="4", memory="8Gi"), _group("1", pods="5")]) is None


prices = st.decimals(min_value="0.0001", max_value="100", places=4)
sizes = st.tuples(prices, st.integers(1, 128), st.integers(1, 1024), st.integers(0, 8))


@given(st.lists(sizes, min_size=1, max_size=6))
def test_no_node_is_cheaper_than_the_cores_and_memory_it_offers(offers: list[tuple[Decimal, int, int, int]]) -> None:
    """So a plain pod is never priced above the node it could fill."""
    groups = [_group(str(price), cpu=str(cpu), memory=f"{gib}Gi", x_gpu=str(gpu)) for price, cpu, gib, gpu in offers]
    reference = reference_price(groups)
    assert reference is not None
    for group in groups:
        assert group.price is not None
        plain = {name: amount for name, amount in group.template.allocatable.items() if name in {"cpu", "memory"}}
        has_gpu = group.template.allocatable["x/gpu"] > Quantity(0)
        if not has_gpu:
            assert pod_price(plain, NOON, ONE, reference) <= node_price(group.price.amount, NOON, ONE) * 1.000001
        assert pod_price(plain, NOON, ONE, reference) > 0
    assert all(price > 0 for price in reference.gpus.values())
