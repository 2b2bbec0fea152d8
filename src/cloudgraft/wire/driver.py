"""Defines the driver protocol: six calls, and the conversion between its messages and the types of the sdk.

The other side may be a program in any language. A missing field means the harmless default where there is one. Fields
that decide about deleting and creating machines (ownership, idempotency) have no default and are required.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from cloudgraft.sdk.driver import (
    DriverTraits,
    Idempotency,
    Machine,
    MachineSpec,
    MachineState,
    Ownership,
    PartialList,
    Price,
    ProviderIdBy,
    Shape,
)
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, UnsupportedError
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import Taint
from cloudgraft.wire.pb import driver_pb2 as pb
from cloudgraft.wire.rpc import rpc_table

SERVICE: Final = "cloudgraft.driver.v1.Driver"
RPCS: Final = rpc_table(pb.DESCRIPTOR.services_by_name["Driver"])

_SETTINGS: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_STATES: Final = {"": MachineState.RUNNING, **{state.value: state for state in MachineState}}
Word = TypeVar("Word", bound=enum.Enum)


# -- traits ------------------------------------------------------------------------------------------------------------


def traits_to_pb(traits: DriverTraits) -> pb.DescribeResponse:
    message = pb.DescribeResponse(
        ownership=traits.ownership.value,
        idempotency=traits.idempotency.value,
        complete_list=traits.complete_list,
        provider_id=traits.provider_id,
        provider_id_by=traits.provider_id_by.value,
        user_data_limit=traits.user_data_limit,
        max_calls=traits.max_calls,
    )
    message.list_delay.FromTimedelta(traits.list_delay)
    message.catalog_lasts.FromTimedelta(traits.catalog_lasts)
    if traits.create_timeout is not None:
        message.create_timeout.FromTimedelta(traits.create_timeout)
    return message


def traits_from_pb(message: pb.DescribeResponse) -> DriverTraits:
    """A driver's traits; ownership and idempotency are required, because deletion of machines depends on them."""
    try:
        return DriverTraits(
            ownership=_word(Ownership, message.ownership, "ownership"),
            idempotency=_word(Idempotency, message.idempotency, "idempotency"),
            list_delay=_duration(message.list_delay, "list delay"),
            complete_list=message.complete_list,
            provider_id=message.provider_id,
            provider_id_by=_word(ProviderIdBy, message.provider_id_by or "cloudgraft", "provider_id_by"),
            user_data_limit=message.user_data_limit if message.HasField("user_data_limit") else None,
            catalog_lasts=_duration(message.catalog_lasts, "catalog_lasts") or DriverTraits().catalog_lasts,
            create_timeout=_duration(message.create_timeout, "create_timeout") or None,
            max_calls=message.max_calls if message.HasField("max_calls") else None,
        )
    except InvalidArgumentError as error:  # the driver's mistake, not ours
        raise InternalError(f"the driver describes itself wrongly: {error.message}") from error


def _duration(message: Duration, what: str) -> timedelta:
    """A declared time; zero where it is missing."""
    time = timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if time < timedelta(0):
        raise InternalError(f"the driver declares a {what} of {time}: it cannot be negative")
    return time


# -- machines ----------------------------------------------------------------------------------------------------------


def spec_to_pb(spec: MachineSpec) -> pb.CreateRequest:
    message = pb.CreateRequest()
    put_spec(message, spec)
    return message


def put_spec(message: pb.CreateRequest, spec: MachineSpec) -> None:
    """The same, written into an existing message."""
    message.name = spec.name
    message.group = spec.group
    message.settings_json = encode_settings(spec.settings)
    tags = message.tags
    for name, value in spec.tags.items():  # update() takes longer
        tags[name] = value
    message.user_data = spec.user_data


def spec_from_pb(message: pb.CreateRequest) -> MachineSpec:
    if not message.name:
        raise InvalidArgumentError("a machine needs a name: it makes a retry safe")
    return MachineSpec(
        name=message.name,
        group=message.group,
        settings=decode_settings(message.settings_json),
        tags=dict(message.tags),
        user_data=message.user_data,
    )


def encode_settings(settings: Mapping[str, object]) -> str:
    """Settings as JSON: whole numbers stay whole, and every language can read it."""
    try:
        return _SETTINGS.encode(dict(settings))
    except (TypeError, ValueError) as error:
        # The message of json names a type, never a value: settings may hold secrets.
        reason = str(error) if isinstance(error, TypeError) else "a number is not finite, or they contain themselves"
        raise InvalidArgumentError(
            f"these settings cannot be written as JSON ({reason}): use text, numbers, true/false, lists and mappings"
        ) from None


def decode_settings(text: str) -> dict[str, object]:
    try:
        settings = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise InvalidArgumentError("settings_json is not JSON") from None
    if not isinstance(settings, dict):
        raise InvalidArgumentError(f"settings_json is a JSON {type(settings).__name__}, not an object")
    return settings


def machine_to_pb(machine: Machine) -> pb.Machine:
    return pb.Machine(
        name=machine.name,
        machine_id=machine.machine_id,
        provider_id=machine.provider_id,
        state=machine.state.value,
        tags=machine.tags,
        created_at=_timestamp(machine.created_at),
        reason=machine.reason,
        addresses=machine.addresses,
        failure=machine.failure,
    )


def machine_from_pb(message: pb.Machine) -> Machine:
    if not message.machine_id:
        raise InternalError(f"the machine {message.name!r} has no machine_id: without one it cannot be deleted")
    tags = message.tags
    return Machine(
        name=message.name,
        machine_id=message.machine_id,
        provider_id=message.provider_id if message.HasField("provider_id") else None,
        state=_STATES.get(message.state) or _word(MachineState, message.state, "machine state"),
        tags={name: tags[name] for name in tags},  # dict() takes longer
        created_at=_time(message.created_at) if message.HasField("created_at") else None,
        reason=message.reason,
        addresses=tuple(message.addresses),
        failure=message.failure,
    )


def expect_all(machines: object) -> None:
    """Raises UnsupportedError for a list that may lack machines: the protocol cannot say which part is missing.

    Without that, the other side would take machines that are not listed for gone.
    """
    if isinstance(machines, PartialList):
        missing = "" if machines.is_whole else ": a part of the cloud cannot be listed now"
        raise UnsupportedError(f"a driver in another process cannot answer list with a PartialList{missing}")


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    message = Timestamp()
    # A time without a zone would be taken for UTC by protobuf and for local time by Python: Python's reading counts.
    message.FromDatetime(time.astimezone(UTC))
    return message


def _time(message: Timestamp) -> datetime:
    try:
        return message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise InternalError(f"created_at is out of range: {message.seconds}s {message.nanos}ns") from error


# -- shapes and prices -------------------------------------------------------------------------------------------------


def shape_to_pb(shape: Shape) -> pb.Shape:
    capacity = {resource: str(quantity) for resource, quantity in shape.capacity.items()}
    taints = [pb.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in shape.taints]
    variants = [shape_to_pb(variant) for variant in shape.variants]
    return pb.Shape(
        name=shape.name,
        capacity=capacity,
        labels=shape.labels,
        taints=taints,
        variants=variants,
        problem=shape.problem,
    )


def shape_from_pb(message: pb.Shape) -> Shape:
    try:
        capacity = {resource: Quantity(text) for resource, text in message.capacity.items()}
    except InvalidQuantityError as error:
        raise InternalError(f"the shape {message.name!r} has a capacity that is not a quantity: {error}") from error
    taints = tuple(Taint(key=t.key, value=t.value, effect=t.effect or "NoSchedule") for t in message.taints)
    return Shape(
        name=message.name,
        capacity=capacity,
        labels=dict(message.labels),
        taints=taints,
        variants=tuple(shape_from_pb(variant) for variant in message.variants),
        problem=message.problem,
    )


def price_to_pb(price: Price) -> pb.Price:
    return pb.Price(shape=price.shape, hourly=str(price.hourly), currency=price.currency)


def price_from_pb(message: pb.Price) -> Price:
    try:
        hourly = Decimal(message.hourly)
    except InvalidOperation:
        hourly = Decimal("NaN")
    if not hourly.is_finite() or hourly < 0:
        raise InternalError(f"the price of {message.shape!r} is not an amount of money: {message.hourly!r}")
    return Price(shape=message.shape, hourly=hourly, currency=message.currency)


def _word(words: type[Word], text: str, what: str) -> Word:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(repr(word.value) for word in words)
        raise InternalError(f"the driver answers with the {what} {text!r}; it must be one of {known}") from None
