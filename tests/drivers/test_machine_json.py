"""JSON that comes from scripts and endpoints: checked to the last key, and told by the field's name what is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cloudgraft.drivers.common.machine_json import (
    created_from_json,
    dump_json,
    error_from_json,
    machine_from_json,
    machine_to_json,
    machines_from_json,
    parse_json,
    prices_from_json,
    shapes_from_json,
    spec_to_json,
)
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, OutOfStockError, RateLimitedError, error_table
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

FULL = Machine(
    name="pool-1",
    machine_id="vm-1",
    provider_id="lab://vm-1",
    state=MachineState.STOPPED,
    tags={"cloudgraft-group": 'Größe "M"'},
    created_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
    reason="somebody pulled the plug",
    addresses=("10.0.0.7", "pool-1.lab"),
    failure="out_of_stock",
)


def test_a_machine_survives_the_way_out_and_back() -> None:
    assert machine_from_json(parse_json(dump_json(machine_to_json(FULL)), "it")) == FULL


def test_only_name_and_id_must_be_told() -> None:
    machine = machine_from_json({"name": "a", "machineID": "1", "providerID": None, "tags": None})
    assert machine == Machine(name="a", machine_id="1")
    assert machine.state is MachineState.RUNNING


def test_a_spec_is_told_with_its_user_data() -> None:
    spec = MachineSpec(name="a", group="g", settings={"size": 1}, tags={"t": "v"}, user_data="#cloud-config")
    told = {"name": "a", "group": "g", "settings": {"size": 1}, "tags": {"t": "v"}, "userData": "#cloud-config"}
    assert spec_to_json(spec) == told
    with pytest.raises(InvalidArgumentError, match="cannot be written as JSON"):
        dump_json({"when": datetime(2026, 1, 31, tzinfo=UTC)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machineID": ""}, r"machine.machineID must be a text that is not empty; it is \"\""),
        ({"machineID": 7}, "machine.machineID must be a text that is not empty; it is 7, without quotation marks"),
        ({"name": None}, "machine.name must be a text; it is missing"),
        ({"providerID": ["x"]}, "machine.providerID must be a text; it is a list"),
        ({"providerId": "lab://1"}, r"unknown key \"providerId\"; did you mean 'providerID'\?"),
        ({"whatever": 1}, r"unknown key \"whatever\"; known here: name, machineID, "),
        ({"state": "Running"}, r"machine.state must be one of pending, running, .*; it is \"Running\""),
        ({"tags": {"a": 1}}, "machine.tags.a must be a text; it is 1"),
        ({"tags": "a=b"}, "machine.tags must be an object"),
        ({"addresses": "10.0.0.1"}, "machine.addresses must be a list of texts"),
        ({"createdAt": "2026-01-31T12:00:00"}, "machine.createdAt must be a time with its zone"),
        ({"createdAt": "yesterday"}, "machine.createdAt must be a time with its zone"),
        ({"reason": True}, "machine.reason must be a text; it is true"),
    ],
)
def test_a_wrong_machine_is_told_by_its_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        machine_from_json({"name": "a", "machineID": "1", **change})


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the answer is empty: it must be a JSON object"),
        (b"  \n", "the answer is empty"),
        (b"created vm-1", 'the answer is not JSON: .* it begins with "created vm-1"'),
        (b"\xff\xfe\x00", "not even UTF-8"),
        (b'{"machines": [', "the answer is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"machines": []}\n{"machines": []}', "more follows in line 2, but it must be one JSON object"),
        (b'{"machines": [1], "machines": []}', 'an object has the key "machines" twice'),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_json_is_told(raw: bytes, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        parse_json(raw, "the answer")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the answer must be a JSON object, not a list"),
        ({}, "the answer: machines must be a list, not null"),
        ({"machines": {}}, "the answer: machines must be a list, not an object"),
        ({"machines": [], "next": "x"}, 'the answer has the unknown key "next"'),
        ({"machines": [{"name": "a", "machineID": "1"}, 3]}, r"machines\[1\] must be a JSON object, not 3"),
        ({"machines": [{"name": "a", "machineID": "1"}] * 2}, 'two of the machines have the machineID "1"'),
    ],
)
def test_a_wrong_list_is_told(data: object, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        machines_from_json(data)


def test_a_machine_by_another_name_is_no_answer_to_create() -> None:
    answer = {"machine": {"name": "other", "machineID": "1"}}
    assert created_from_json(answer, "other").machine_id == "1"
    with pytest.raises(InternalError, match=r'machine.name is "other", but \'mine\' was to be created'):
        created_from_json(answer, "mine")
    with pytest.raises(InternalError, match="machine must be a JSON object, not null"):
        created_from_json({}, "mine")


def test_shapes_and_prices_are_exact() -> None:
    amounts = {"cpu": 2, "memory": "4Gi", "pods": 1.5}
    taints = [{"key": "gpu", "value": "yes", "effect": "NoExecute"}, {"key": "spot", "effect": "NoSchedule"}]
    shapes = {"shapes": [{"name": "s", "capacity": amounts, "labels": {"a": "b"}, "taints": taints}]}
    capacity = {"cpu": Quantity("2"), "memory": Quantity("4Gi"), "pods": Quantity("1.5")}
    assert shapes_from_json(parse_json(json.dumps(shapes).encode(), "it")) == [
        Shape(
            name="s",
            capacity=capacity,
            labels={"a": "b"},
            taints=(Taint(key="gpu", value="yes", effect="NoExecute"), Taint(key="spot")),
        )
    ]
    entries = b'{"shape": "s", "hourly": 0.1, "currency": "EUR"}, {"shape": "l", "hourly": "2", "currency": "EUR"}'
    prices = b'{"prices": [' + entries + b"]}"
    assert prices_from_json(parse_json(prices, "it")) == [
        Price(shape="s", hourly=Decimal("0.1"), currency="EUR"),
        Price(shape="l", hourly=Decimal(2), currency="EUR"),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "s", "capacity": {"cpu": "two"}}, r"shapes\[0\].capacity.cpu: 'two' is not a quantity"),
        ({"name": "s", "capacity": {"cpu": []}}, r"shapes\[0\].capacity.cpu: a list is not a quantity"),
        ({"name": "s", "capacity": {"cpu": True}}, r"shapes\[0\].capacity.cpu: a bool is not a quantity"),
        ({"name": "s", "capacity": {}, "taints": {}}, r"shapes\[0\].taints must be a list, not an object"),
        ({"name": "s", "capacity": {}, "taints": [{"key": "k"}]}, r"taints\[0\].effect must be a text; it is missing"),
        (
            {"name": "s", "capacity": {}, "taints": [{"key": "k", "effect": "never"}]},
            r"taints\[0\].effect must be one of NoSchedule, PreferNoSchedule, NoExecute; it is \"never\"",
        ),
        ({"capacity": {}}, r"shapes\[0\].name must be a text that is not empty; it is missing"),
    ],
)
def test_a_wrong_shape_is_told(entry: object, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        shapes_from_json({"shapes": [entry]})


@pytest.mark.parametrize("hourly", ["dear", "NaN", "-1", True, None, [], "Infinity"])
def test_a_wrong_price_is_told(hourly: object) -> None:
    with pytest.raises(InternalError, match=r"prices\[0\].hourly must be a number that is not negative"):
        prices_from_json({"prices": [{"shape": "s", "hourly": hourly, "currency": "EUR"}]})


@pytest.mark.parametrize("kind", error_table(), ids=lambda kind: str(kind.slug))
def test_every_error_of_the_sdk_can_be_told(kind: type[InternalError]) -> None:
    error = error_from_json({"error": {"code": kind.slug, "message": "no"}})
    assert type(error) is kind
    assert str(error) == "no"


def test_an_error_may_say_when_to_come_back() -> None:
    error = error_from_json({"error": {"code": "rate_limited", "message": "slowly", "retryAfter": "1m30s"}})
    assert isinstance(error, RateLimitedError)
    assert error.retry_after == 90
    late = error_from_json({"error": {"code": "out_of_stock", "message": "no", "retryAfter": "soon"}})
    assert isinstance(late, OutOfStockError)  # the class matters more than the hint
    assert 'its retryAfter, "soon", is not a duration' in str(late)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("no", 'error must be a JSON object, not "no"'),
        ({"code": "out_of_stok", "message": "no"}, r"error.code is \"out_of_stok\"; did you mean 'out_of_stock'\?"),
        ({"code": "?", "message": "no"}, r"known here: invalid_argument, .*It said: no"),
        ({"message": "no"}, "error.code must be a text that is not empty; it is missing"),
        ({"code": "internal", "message": "no", "details": {}}, 'error has the unknown key "details"'),
    ],
)
def test_an_error_that_is_none_leaves_the_outcome_open(error: object, message: str) -> None:
    """Law 3: what nobody understands may have done anything."""
    found = error_from_json({"error": error})
    assert type(found) is InternalError
    with pytest.raises(InternalError, match=message):
        raise found


def test_no_error_is_no_error() -> None:
    assert error_from_json({"machines": []}) is None
    assert error_from_json({"error": None}) is None
    assert error_from_json([]) is None
