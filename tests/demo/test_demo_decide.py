"""The demo's decisions: pure functions, without a server or a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.demo.decide import (
    Candidate,
    Offer,
    Option,
    PricedOption,
    Room,
    Shape,
    choose_option,
    find_removable,
    list_options,
    place,
    track_unneeded,
)
from cloudgraft.demo.timetable import PodSpec
from cloudgraft.sdk import NodeTemplate, Quantity, Taint

SMALL = Shape(milli_cpu=2000)
LARGE = Shape(milli_cpu=8000)
GPU = Shape(milli_cpu=8000, labels={"pool": "gpu"}, taints=frozenset({"pool"}))


def pods(count: int, milli_cpu: int = 1000, name: str = "pod") -> tuple[PodSpec, ...]:
    return tuple(PodSpec(name=f"{name}-{number}", milli_cpu=milli_cpu) for number in range(count))


def test_a_shape_is_what_the_template_promises() -> None:
    amounts = {"cpu": Quantity("1500m"), "memory": Quantity("8Gi"), "pods": Quantity("20")}
    taints = (Taint(key="pool", value="gpu"), Taint(key="soft", effect="PreferNoSchedule"))
    shape = Shape.of(NodeTemplate(labels={"pool": "gpu"}, taints=taints, capacity=amounts, allocatable=amounts))
    assert shape == Shape(milli_cpu=1500, pods=20, memory="8Gi", labels={"pool": "gpu"}, taints=frozenset({"pool"}))


def test_nothing_fits_on_a_template_without_pods() -> None:
    """R68."""
    shape = Shape.of(NodeTemplate(allocatable={"cpu": Quantity("4")}))
    assert place(pods(1), [Room.of("node", shape)]).left_over == pods(1)


def test_a_pod_goes_to_the_first_room_that_takes_it() -> None:
    rooms = [Room.of("full", SMALL, pods(2)), Room.of("first", SMALL), Room.of("second", SMALL)]
    placed = place(pods(3), rooms)
    assert placed.places == {"pod-0": "first", "pod-1": "first", "pod-2": "second"}
    assert placed.left_over == ()


@pytest.mark.parametrize(
    ("selector", "tolerates", "fits"),
    [
        ({}, frozenset[str](), False),  # the taint keeps it out
        ({"pool": "gpu"}, frozenset[str](), False),
        ({"pool": "gpu"}, frozenset({"pool"}), True),
        ({"pool": "small"}, frozenset({"pool"}), False),  # the label is another
    ],
)
def test_labels_and_taints_decide_who_may_enter(
    selector: dict[str, str], tolerates: frozenset[str], *, fits: bool
) -> None:
    pod = PodSpec(name="train", milli_cpu=1000, selector=selector, tolerates=tolerates)
    assert Room.of("gpu-1", GPU).fits(pod) is fits


@given(
    sizes=st.lists(st.integers(min_value=1, max_value=3000), max_size=30),
    nodes=st.integers(min_value=0, max_value=10),
)
def test_no_room_is_ever_overfilled_and_no_pod_is_lost(sizes: list[int], nodes: int) -> None:
    all_pods = [PodSpec(name=f"pod-{number}", milli_cpu=size) for number, size in enumerate(sizes)]
    placed = place(all_pods, [Room.of(f"node-{number}", SMALL) for number in range(nodes)])
    assert len(placed.places) + len(placed.left_over) == len(all_pods)
    assert all(room.free_milli_cpu >= 0 for room in placed.rooms)


# -- more nodes --------------------------------------------------------------------------------------------------------


def test_an_option_counts_the_nodes_that_the_pods_need() -> None:
    offers = [Offer(group="small", shape=SMALL, most=10), Offer(group="large", shape=LARGE, most=10)]
    found = {option.group: option.nodes for option in list_options(pods(11), offers)}
    assert found == {"small": 6, "large": 2}


def test_a_group_offers_no_more_than_it_may_grow() -> None:
    (option,) = list_options(pods(11), [Offer(group="small", shape=SMALL, most=2)])
    assert (option.nodes, len(option.pods)) == (2, 4)


@pytest.mark.parametrize("offer", [Offer(group="gpu", shape=GPU, most=5), Offer(group="full", shape=LARGE, most=0)])
def test_a_group_that_helps_nobody_is_no_option(offer: Offer) -> None:
    assert list_options(pods(3), [offer]) == []


def priced(group: str, nodes: int, node_price: float, count: int) -> PricedOption:
    option = Option(group=group, nodes=nodes, pods=pods(count))
    return PricedOption(option=option, node_price=node_price, pods_price=0.02 * count)


def test_the_cheapest_option_wins() -> None:
    options = [priced("large", 2, 0.20, 11), priced("small", 6, 0.04, 11)]
    assert choose_option(options, stabilizer=0.01) == options[1]


def test_an_option_that_helps_more_pods_for_the_money_wins() -> None:
    """R84: what counts is the price for what the pods are worth, not the price alone."""
    options = [priced("small", 1, 0.04, 1), priced("large", 1, 0.20, 8)]
    assert choose_option(options, stabilizer=0.01) == options[1]


def test_without_options_nothing_is_chosen() -> None:
    assert choose_option([], stabilizer=0.0) is None


# -- fewer nodes -------------------------------------------------------------------------------------------------------


def candidate(name: str, on_it: tuple[PodSpec, ...] = (), shape: Shape = SMALL) -> Candidate:
    return Candidate(name=name, group=name.partition("-")[0], shape=shape, pods=on_it, threshold=0.5)


def removable(*candidates: Candidate, spare: int = 10) -> list[str]:
    rooms = [Room.of(one.name, one.shape, one.pods) for one in candidates]
    return find_removable(candidates, rooms, {one.group: spare for one in candidates})


def test_an_empty_node_is_removable() -> None:
    assert removable(candidate("small-1"), candidate("small-2", pods(2))) == ["small-1"]


def test_a_node_is_removable_when_its_pods_fit_elsewhere() -> None:
    assert removable(candidate("small-1", pods(1)), candidate("large-1", pods(5), LARGE)) == ["small-1"]


def test_a_node_whose_pods_fit_nowhere_stays() -> None:
    assert removable(candidate("small-1", pods(1)), candidate("small-2", pods(2))) == []


def test_a_node_above_its_groups_threshold_stays() -> None:
    busy = candidate("small-1", pods(1, 1001))
    assert removable(busy, candidate("large-1", pods(5), LARGE)) == []


def test_no_group_shrinks_below_its_minimum() -> None:
    assert removable(candidate("small-1"), candidate("small-2"), spare=1) == ["small-1"]


def test_two_nodes_are_not_drained_onto_each_other() -> None:
    """Half empty nodes could each move to the other; only one of them may."""
    one, other = candidate("small-1", pods(1, name="a")), candidate("small-2", pods(1, name="b"))
    assert removable(one, other) == ["small-1"]


@given(loads=st.lists(st.integers(min_value=0, max_value=4), min_size=1, max_size=8))
def test_all_pods_still_fit_when_all_removable_nodes_are_gone(loads: list[int]) -> None:
    nodes = [candidate(f"small-{number}", pods(load, 500, f"n{number}")) for number, load in enumerate(loads)]
    gone = set(removable(*nodes))
    staying = [Room.of(node.name, node.shape, node.pods) for node in nodes if node.name not in gone]
    moving = [pod for node in nodes if node.name in gone for pod in node.pods]
    assert place(moving, staying).left_over == ()


def test_a_node_that_was_needed_in_between_starts_again() -> None:
    since = track_unneeded({}, ["a", "b"], 10.0)
    since = track_unneeded(since, ["b"], 20.0)
    assert track_unneeded(since, ["a", "b"], 30.0) == {"a": 30.0, "b": 10.0}
