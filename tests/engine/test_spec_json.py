"""A group's spec survives the journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.engine.groups.spec_json import group_from_json, group_to_json
from cloudgraft.engine.groups.specs import GroupSpec, Money
from cloudgraft.sdk import AutoscalingOptions, InvalidArgumentError, NodeCondition, NodeTemplate, Quantity, Taint

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
labels = st.dictionaries(texts, texts, max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
amounts = st.dictionaries(
    texts,
    st.integers(0, 2**60).map(Quantity) | st.sampled_from(["500m", "1.5Gi", "1e3", "0"]).map(Quantity),
    max_size=3,
)
shares = st.none() | st.floats(0, 1)
durations = st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365 * 100))
booleans = st.none() | st.booleans()
templates = st.builds(
    NodeTemplate,
    labels=labels,
    annotations=labels,
    taints=st.lists(st.builds(Taint, key=texts, value=texts, effect=texts), max_size=2).map(tuple),
    capacity=amounts,
    allocatable=amounts,
    conditions=st.lists(
        st.builds(NodeCondition, type=texts, status=texts, reason=texts, message=texts), max_size=2
    ).map(tuple),
    name=texts,
    provider_id=texts,
    unschedulable=st.booleans(),
)
options = st.builds(
    AutoscalingOptions,
    scale_down_utilization_threshold=shares,
    scale_down_gpu_utilization_threshold=shares,
    scale_down_unneeded_time=durations,
    scale_down_unready_time=durations,
    max_node_provision_time=durations,
    zero_or_max_node_scaling=booleans,
    ignore_daemon_sets_utilization=booleans,
    max_node_startup_time=durations,
    allow_non_atomic_scale_up_to_max=booleans,
)
specs = st.builds(
    GroupSpec,
    id=texts,
    cloud=texts,
    min_size=st.integers(0, 2**31 - 1),
    max_size=st.integers(0, 2**31 - 1),
    machine=st.dictionaries(texts, values, max_size=3),
    template=templates,
    labels=st.dictionaries(texts, texts, max_size=3),
    options=st.none() | options,
    price=st.none()
    | st.builds(Money, amount=st.decimals(allow_nan=False, allow_infinity=False), currency=st.just("EUR")),
)

SPEC = GroupSpec(
    id="lab",
    cloud="lab",
    min_size=0,
    max_size=3,
    machine={"shape": "small"},
    template=NodeTemplate(capacity={"cpu": Quantity("2")}, taints=(Taint(key="a"),)),
    labels={"pool": "lab"},
    taints=(Taint(key="a"),),
    options=AutoscalingOptions(scale_down_unneeded_time=timedelta(minutes=5), scale_down_utilization_threshold=1.0),
    price=Money(amount=Decimal("0.050"), currency="EUR"),
)


@given(specs)
def test_a_spec_comes_back_exactly_as_it_was(spec: GroupSpec) -> None:
    back = group_from_json(json.loads(json.dumps(group_to_json(spec), allow_nan=False)))
    assert back == spec
    assert repr(back) == repr(spec)  # 1 and 1.0, "1000m" and "1" are equal, but not the same


def test_a_spec_of_a_release_that_learned_nothing_gives_nodes_what_it_promised() -> None:
    """So that an upgrade is no change of the group."""
    old = {key: value for key, value in group_to_json(SPEC).items() if key not in ("labels", "taints")}
    back = group_from_json(old)
    assert (back.labels, back.taints) == (SPEC.template.labels, SPEC.template.taints)


def test_what_a_person_finds_in_the_journal_is_readable() -> None:
    assert group_to_json(SPEC) == {
        "id": "lab",
        "cloud": "lab",
        "min_size": 0,
        "max_size": 3,
        "machine": {"shape": "small"},
        "template": {
            "labels": {},
            "annotations": {},
            "taints": [{"key": "a", "value": "", "effect": "NoSchedule"}],
            "capacity": {"cpu": "2"},
            "allocatable": {},
            "conditions": [],
            "name": "",
            "provider_id": "",
            "unschedulable": False,
        },
        "labels": {"pool": "lab"},
        "taints": [{"key": "a", "value": "", "effect": "NoSchedule"}],
        "options": {"scale_down_unneeded_time": "5m0s", "scale_down_utilization_threshold": 1.0},
        "price": {"amount": "0.050", "currency": "EUR"},
    }


def test_what_a_later_version_has_written_beside_is_passed_over() -> None:
    data: dict[str, Any] = json.loads(json.dumps(group_to_json(SPEC)))
    for part in (data, data["template"], data["template"]["taints"][0], data["options"], data["price"]):
        part["spot"] = {"bid": [1]}
    data["options"]["scale_down_utilization_threshold"] = 1  # as another language's JSON writes 1.0
    assert group_from_json(data) == SPEC


def _without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(key)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_without("max_size"), "the group 'lab' cannot be read: max_size is missing"),
        (_without("id"), "the group '' cannot be read: id is missing"),
        (_without("template"), "the group 'lab' cannot be read: template is missing"),
        (lambda data: data.update(min_size=True), r"min_size is of the wrong kind \(bool\)"),
        (lambda data: data.update(machine=[1]), r"machine is of the wrong kind \(list\)"),
        (lambda data: data["template"].update(taints=[7]), r"template.taints\[0\] is of the wrong kind \(int\)"),
        (lambda data: data["template"]["capacity"].update(cpu="much"), "template.capacity.cpu is wrong: 'much'"),
        (lambda data: data["template"]["labels"].update(a=1), r"template.labels.a is of the wrong kind \(int\)"),
        (lambda data: data["options"].update(scale_down_unneeded_time="soon"), "scale_down_unneeded_time is wrong"),
        (lambda data: data["price"].update(amount="cheap"), "amount is wrong: 'cheap' is not an amount of money"),
        (lambda data: data["price"].update(amount="NaN"), "amount is wrong: 'NaN' is not an amount of money"),
    ],
)
def test_what_cannot_be_read_is_said(damage: Callable[[dict[str, Any]], None], complaint: str) -> None:
    data = json.loads(json.dumps(group_to_json(SPEC)))
    damage(data)
    with pytest.raises(InvalidArgumentError, match=complaint):
        group_from_json(data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", {1: "a"}])
def test_settings_that_json_does_not_have_are_refused_without_their_value(value: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"machine.x\[0\] is a \w+ that JSON does not have") as caught:
        group_to_json(replace(SPEC, machine={"secret": "hunter2", "x": [value]}))
    assert "hunter2" not in caught.value.message
