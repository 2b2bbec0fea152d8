"""What goes over the wire comes back the same; what a foreign driver leaves out or gets wrong is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgraft.sdk import (
    DriverTraits,
    Idempotency,
    InternalError,
    InvalidArgumentError,
    Machine,
    MachineSpec,
    MachineState,
    Ownership,
    Price,
    ProviderIdBy,
    Quantity,
    Shape,
    Taint,
)
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
tags = st.dictionaries(texts, texts, max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
times = st.datetimes(timezones=st.just(UTC))


@given(
    st.builds(
        MachineSpec,
        name=texts.filter(bool),
        group=texts,
        settings=st.dictionaries(texts, json_values, max_size=4),
        tags=tags,
        user_data=texts,
    )
)
def test_a_spec_survives_and_its_whole_numbers_stay_whole(spec: MachineSpec) -> None:
    back = wire.spec_from_pb(pb.CreateRequest.FromString(wire.spec_to_pb(spec).SerializeToString()))
    assert back == spec
    assert repr(back.settings) == repr(spec.settings)  # 1 and 1.0 are equal, but not the same


@given(
    st.builds(
        Machine,
        name=texts,
        machine_id=texts.filter(bool),
        provider_id=st.none() | texts,
        state=st.sampled_from(MachineState),
        tags=tags,
        created_at=st.none() | times,
        reason=texts,
        addresses=st.lists(texts, max_size=3).map(tuple),
        failure=texts,
    )
)
def test_a_machine_survives_and_no_provider_id_is_not_an_empty_one(machine: Machine) -> None:
    message = pb.Machine.FromString(wire.machine_to_pb(machine).SerializeToString())
    assert wire.machine_from_pb(message) == machine


@given(
    st.builds(
        DriverTraits,
        ownership=st.sampled_from(Ownership),
        idempotency=st.sampled_from(Idempotency),
        list_delay=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=365)),
        complete_list=st.booleans(),
        provider_id=st.just("")
        | st.builds("{}{{name}}{}".format, *[texts.filter(lambda t: not set(t) & set("{}"))] * 2),
        provider_id_by=st.sampled_from(ProviderIdBy),
        user_data_limit=st.none() | st.integers(0, 2**40),
        max_calls=st.none() | st.integers(1, 2**40),
        catalog_lasts=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=365)),
        create_timeout=st.none() | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=1)),
    )
)
def test_traits_survive(traits: DriverTraits) -> None:
    message = pb.DescribeResponse.FromString(wire.traits_to_pb(traits).SerializeToString())
    assert wire.traits_from_pb(message) == traits


def test_a_driver_of_before_the_provider_id_does_not_know_it_beforehand() -> None:
    old = pb.DescribeResponse(ownership="tags", idempotency="none", complete_list=True)
    assert wire.traits_from_pb(old).provider_id == ""
    assert wire.traits_from_pb(old).provider_id_by is ProviderIdBy.CLOUDGRAFT
    assert wire.traits_from_pb(old).user_data_limit is None
    assert wire.traits_from_pb(old).catalog_lasts == timedelta(hours=1)
    assert wire.traits_from_pb(old).create_timeout is None


def test_shapes_and_prices_survive() -> None:
    capacity = {"cpu": Quantity("4"), "memory": Quantity("1.5Gi")}
    taints = (Taint(key="gpu", value="yes", effect="NoExecute"), Taint(key="spot"))
    shape = Shape(name="4c8g", capacity=capacity, labels={"a": "b"}, taints=taints)
    assert wire.shape_from_pb(wire.shape_to_pb(shape)) == shape
    unsure = Shape(name="any", capacity={}, variants=(shape, Shape(name="b", capacity={})), problem="none is free")
    assert wire.shape_from_pb(wire.shape_to_pb(unsure)) == unsure
    assert wire.shape_from_pb(pb.Shape(taints=[pb.Taint(key="spot")])).taints == (Taint(key="spot"),)
    price = Price(shape="4c8g", hourly=Decimal("0.10000000000000000001"), currency="EUR")
    assert wire.price_from_pb(wire.price_to_pb(price)) == price


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    time = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    machine = Machine(name="m", machine_id="1", created_at=time)
    back = wire.machine_from_pb(wire.machine_to_pb(machine)).created_at
    assert back == time


def test_a_machine_without_a_state_runs() -> None:
    assert wire.machine_from_pb(pb.Machine(machine_id="1")).state is MachineState.RUNNING


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (pb.DescribeResponse(idempotency="none"), "ownership ''; it must be one of 'tags', 'name', 'inventory'"),
        (pb.DescribeResponse(ownership="tags"), "idempotency ''"),
        (pb.DescribeResponse(ownership="mine", idempotency="none"), "ownership 'mine'"),
    ],
)
def test_what_decides_over_deleting_must_be_said(message: pb.DescribeResponse, complaint: str) -> None:
    with pytest.raises(InternalError) as caught:
        wire.traits_from_pb(message)
    assert complaint in caught.value.message


def test_nonsense_of_a_driver_is_its_bug() -> None:
    late = pb.DescribeResponse(ownership="tags", idempotency="none")
    late.list_delay.seconds = -1
    with pytest.raises(InternalError, match="cannot be negative"):
        wire.traits_from_pb(late)
    same = pb.DescribeResponse(ownership="tags", idempotency="none", provider_id="acme://all-the-same")
    with pytest.raises(InternalError, match=r"must hold \{name\}"):
        wire.traits_from_pb(same)
    with pytest.raises(InternalError, match="no machine_id"):
        wire.machine_from_pb(pb.Machine(name="m"))
    with pytest.raises(InternalError, match="machine state 'dancing'"):
        wire.machine_from_pb(pb.Machine(name="m", machine_id="1", state="dancing"))
    with pytest.raises(InternalError, match="not a quantity"):
        wire.shape_from_pb(pb.Shape(name="s", capacity={"cpu": "much"}))
    far = pb.Machine(name="m", machine_id="1")
    far.created_at.seconds = 10**15
    with pytest.raises(InternalError, match="out of range"):
        wire.machine_from_pb(far)
    for hourly in ("", "cheap", "NaN", "Infinity", "-1"):
        with pytest.raises(InternalError, match="not an amount of money"):
            wire.price_from_pb(pb.Price(shape="s", hourly=hourly))


@pytest.mark.parametrize("text", ["[1]", "7", "null", "{", "{'a': 1}", "[" * 100_000])
def test_settings_that_are_no_json_object_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="settings_json"):
        wire.spec_from_pb(pb.CreateRequest(name="m", settings_json=text))


def test_a_machine_needs_a_name() -> None:
    with pytest.raises(InvalidArgumentError, match="needs a name"):
        wire.spec_from_pb(pb.CreateRequest(settings_json="{}"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, b"bytes"])
def test_settings_that_cannot_travel_are_refused_without_their_value(value: object) -> None:
    spec = MachineSpec(name="m", group="g", settings={"secret": "hunter2", "x": value})
    with pytest.raises(InvalidArgumentError, match="cannot be written as JSON") as caught:
        wire.spec_to_pb(spec)
    assert "hunter2" not in caught.value.message
