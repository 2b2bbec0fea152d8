"""Validates driver responses. Their mistakes must not reach the journal, a decision or an RPC. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from cloudgraft.sdk.driver import Machine, MachineState, Price, Shape
from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint

T = TypeVar("T")


def check_machine(answer: object, call: str) -> Machine:
    """Validates a machine of a driver's response; ``call`` names the call in the message."""
    if not isinstance(answer, Machine) or not isinstance(answer.machine_id, str) or not answer.machine_id:
        raise InternalError(f"the driver's {call} did not answer with a Machine that has a machine_id")
    if not is_storable(answer.machine_id):
        raise _nonsense(answer, call, "machine_id", "has characters that cannot be stored: NUL or half of a pair")
    if not isinstance(answer.name, str):
        raise _nonsense(answer, call, "name", "is not a str")
    if answer.provider_id is not None and not isinstance(answer.provider_id, str):
        raise _nonsense(answer, call, "provider_id", "is neither a str nor None")
    if answer.provider_id and not is_storable(answer.provider_id):
        raise _nonsense(answer, call, "provider_id", "has characters that cannot be stored: NUL or half of a pair")
    if not isinstance(answer.state, MachineState):
        raise _nonsense(answer, call, "state", "is not a MachineState")
    if not isinstance(answer.tags, dict) and not isinstance(answer.tags, Mapping):
        raise _nonsense(answer, call, "tags", "is not a mapping")
    if answer.created_at is not None and not _is_time(answer.created_at):
        raise _nonsense(answer, call, "created_at", "is neither None nor a datetime that this system can count")
    if answer.addresses and not _is_texts(answer.addresses):
        raise _nonsense(answer, call, "addresses", "is not a sequence of str")
    return answer


def _is_texts(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return all(isinstance(one, str) for one in value)


def is_storable(text: str) -> bool:
    """Whether every database can store the text: no NUL, and no half of a surrogate pair."""
    if text.isascii():
        return "\0" not in text
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, datetime) and value.timestamp() is not None
    except (OverflowError, ValueError, OSError):  # a naive datetime of the year 1
        return False


def _nonsense(machine: Machine, call: str, field: str, what: str) -> InternalError:
    return InternalError(f"the driver's {call} answered with machine {machine.machine_id!r} whose {field} {what}")


def check_shapes(answer: object) -> Sequence[Shape]:
    """Validates a driver's machine types."""
    shapes = _all_are(Shape, answer, "shapes()")
    for shape in shapes:
        is_named = isinstance(shape.name, str) and isinstance(shape.labels, Mapping)
        amounts = shape.capacity.values() if isinstance(shape.capacity, Mapping) else [None]
        if not is_named or not all(isinstance(amount, Quantity) for amount in amounts):
            raise InternalError(f"the driver's shapes() has {shape.name!r}, whose capacity is not made of Quantity")
        if not isinstance(shape.taints, Sequence) or not all(_is_taint(taint) for taint in shape.taints):
            effects = ", ".join(TAINT_EFFECTS)
            raise InternalError(
                f"the driver's shapes() has {shape.name!r}, whose taints are not made of Taint, each with a key and an "
                f"effect that is one of {effects}"
            )
        if not isinstance(shape.problem, str):
            raise InternalError(f"the driver's shapes() has {shape.name!r}, whose problem is not a str")
        check_shapes(shape.variants)
    return shapes


def _is_taint(value: object) -> bool:
    return isinstance(value, Taint) and isinstance(value.key, str) and bool(value.key) and value.effect in TAINT_EFFECTS


def check_prices(answer: object) -> Sequence[Price]:
    """Validates a driver's prices."""
    prices = _all_are(Price, answer, "prices()")
    for price in prices:
        is_number = isinstance(price.hourly, Decimal | int | float) and math.isfinite(price.hourly)
        if not is_number or not isinstance(price.currency, str) or not is_storable(price.currency):
            raise InternalError(f"the driver's prices() has {price.shape!r} without a Decimal, or without a currency")
    return prices


def _all_are(kind: type[T], answer: object, call: str) -> Sequence[T]:
    if not isinstance(answer, Sequence) or not all(isinstance(one, kind) for one in answer):
        raise InternalError(f"the driver's {call} did not answer with a sequence of {kind.__name__}")
    return answer
