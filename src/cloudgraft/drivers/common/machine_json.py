"""Machines, shapes, prices and errors as JSON: what scripts (`exec`) and endpoints (`http`) get and answer.

Keys are in camelCase; ``machineID`` and ``providerID`` are spelt as Kubernetes spells them. What comes from outside is
checked to the last key. Nonsense is an InternalError, which leaves the outcome of a call open: a script that prints
half an answer may well have bought a machine, and a list settles it (law 3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn, TypeVar

from cloudgraft import documents
from cloudgraft.drivers.common.json_fields import Fields, Json, hint, shown
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, error_from_slug, error_table
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint

__all__ = [
    "Json",
    "created_from_json",
    "dump_json",
    "error_from_json",
    "machine_from_json",
    "machine_to_json",
    "machines_from_json",
    "parse_json",
    "prices_from_json",
    "shapes_from_json",
    "spec_to_json",
]

T = TypeVar("T")

_MOST_BYTES: Final = 1 << 30  # transports have limits of their own, below this one
_LOOKED_AT: Final = 4096  # bytes: more than is shown, so that no secret is cut before it is hidden
_STATES: Final = ", ".join(state.value for state in MachineState)


# -- out ---------------------------------------------------------------------------------------------------------------


def spec_to_json(spec: MachineSpec) -> Json:
    """The machine to create. It holds secrets: ``userData``."""
    return {
        "name": spec.name,
        "group": spec.group,
        "settings": dict(spec.settings),
        "tags": dict(spec.tags),
        "userData": spec.user_data,
    }


def machine_to_json(machine: Machine) -> Json:
    """A machine as it was last seen; :func:`machine_from_json` reads the same."""
    return {
        "name": machine.name,
        "machineID": machine.machine_id,
        "providerID": machine.provider_id,
        "state": machine.state.value,
        "tags": dict(machine.tags),
        "createdAt": machine.created_at.isoformat() if machine.created_at else None,
        "reason": machine.reason,
        "addresses": list(machine.addresses),
        "failure": machine.failure,
    }


def dump_json(data: Mapping[str, object]) -> bytes:
    """As one line of UTF-8; raises InvalidArgumentError for what JSON cannot say, such as a date of a YAML file."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"this cannot be written as JSON: {error}; put it in quotes") from None


# -- in ----------------------------------------------------------------------------------------------------------------


def parse_json(raw: bytes, what: str) -> object:
    """One JSON value; ``what`` says in messages where it came from. Numbers with a point are exact (Decimal)."""
    if not raw.strip():
        raise InternalError(f"{what} is empty: it must be a JSON object")
    try:
        return documents.parse_json(
            raw,
            most_bytes=_MOST_BYTES,
            parse_float=Decimal,
            parse_constant=_no_number,
            object_pairs_hook=_no_twins,
        )
    except documents.ForeignDocumentError as error:
        raise InternalError(f"{what} is not used: {error.message}") from None
    except UnicodeDecodeError:
        raise InternalError(f"{what} is not JSON: it is not even UTF-8 text") from None
    except RecursionError:
        raise InternalError(f"{what} is not the JSON that is expected: it is nested too deeply") from None
    except ValueError as error:  # of json, and of an int with thousands of digits
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            error = ValueError(f"more follows in line {error.lineno}, but it must be one JSON object and nothing else")
        raise InternalError(f"{what} is not JSON: {error}; it begins with {_begin(raw)}") from None


def created_from_json(data: object, name: str, what: str = "the answer") -> Machine:
    """The ``machine`` of an answer to create; ``name`` is the one that was asked for."""
    fields = Fields(data, what)
    machine = machine_from_json(fields.take("machine"), f"{what}: machine")
    fields.end()
    if machine.name != name:
        raise InternalError(
            f"{what}: machine.name is {shown(machine.name)}, but {name!r} was to be created. If a machine with the "
            "wrong name was made, delete it by hand; answer with the name that was asked for"
        )
    return machine


def machines_from_json(data: object, what: str = "the answer") -> list[Machine]:
    """The ``machines`` of an answer to list."""
    machines = _list_of("machines", machine_from_json, data, what)
    seen: dict[str, str] = {}
    for machine in machines:
        if machine.machine_id in seen:
            raise InternalError(f"{what}: two of the machines have the machineID {shown(machine.machine_id)}")
        seen[machine.machine_id] = machine.name
    return machines


def machine_from_json(data: object, where: str = "machine") -> Machine:
    """One machine. Only ``name`` and ``machineID`` must be there; without ``state`` it is running."""
    fields = Fields(data, where)
    machine = Machine(
        name=fields.text("name"),
        machine_id=fields.text("machineID", may_be_empty=False),
        provider_id=fields.optional_text("providerID") or None,
        state=_state(fields),
        tags=fields.texts("tags"),
        created_at=_time(fields),
        reason=fields.optional_text("reason") or "",
        addresses=fields.list_of_texts("addresses"),
        failure=fields.optional_text("failure") or "",
    )
    fields.end()
    return machine


def shapes_from_json(data: object, what: str = "the answer") -> list[Shape]:
    """The ``shapes`` of an answer."""
    return _list_of("shapes", _shape, data, what)


def prices_from_json(data: object, what: str = "the answer") -> list[Price]:
    """The ``prices`` of an answer."""
    return _list_of("prices", _price, data, what)


def error_from_json(data: object, what: str = "the answer") -> CloudgraftError | None:
    """The error that an answer tells, ready to be raised; None when it tells none.

    ``{"error": {"code": "out_of_stock", "message": "no more of m5", "retryAfter": "30s"}}``, with the slugs of
    :mod:`cloudgraft.sdk.errors` as codes.
    """
    if not isinstance(data, Mapping) or data.get("error") is None:
        return None
    try:
        fields = Fields(data["error"], f"{what}: error")
        code, message = fields.text("code", may_be_empty=False), fields.text("message")
        retry_after = fields.optional_text("retryAfter")
        fields.end()
    except InternalError as error:
        return error
    kind = error_from_slug(code)
    if kind is None:
        known = [error.slug for error in error_table()]
        return InternalError(f"{what}: error.code is {shown(code)}; {hint(code, known)}. It said: {message}")
    return _error(kind, message or kind.meaning, retry_after)


def _error(kind: type[CloudgraftError], message: str, retry_after: str | None) -> CloudgraftError:
    if retry_after is None:
        return kind(message)
    try:
        return kind(message, retry_after=max(0.0, parse_duration(retry_after).total_seconds()))
    except ValueError:  # the class matters more than the hint
        return kind(f"{message} (its retryAfter, {shown(retry_after)}, is not a duration such as 30s)")


# -- parts -------------------------------------------------------------------------------------------------------------


def _list_of(key: str, read: Callable[[object, str], T], data: object, what: str) -> list[T]:
    fields = Fields(data, what)
    entries = fields.take(key)
    if not isinstance(entries, list):
        raise InternalError(f"{what}: {key} must be a list, not {shown(entries)}")
    fields.end()
    return [read(entry, f"{what}: {key}[{index}]") for index, entry in enumerate(entries)]


def _state(fields: Fields) -> MachineState:
    value = fields.optional_text("state")
    if value is None:
        return MachineState.RUNNING
    try:
        return MachineState(value)
    except ValueError:
        raise fields.wrong("state", f"one of {_STATES}", value) from None


def _time(fields: Fields) -> datetime | None:
    value = fields.optional_text("createdAt")
    if not value:
        return None
    expected = "a time with its zone, such as 2026-01-31T12:00:00Z"
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is not None and time.timestamp() is not None:
            return time
    except (ValueError, OverflowError, OSError):
        pass
    raise fields.wrong("createdAt", expected, value)


def _shape(data: object, where: str) -> Shape:
    fields = Fields(data, where)
    name, amounts, labels = fields.text("name", may_be_empty=False), fields.mapping("capacity"), fields.texts("labels")
    taints = _taints(fields.take("taints"), f"{where}.taints")
    fields.end()
    capacity: dict[str, Quantity] = {}
    for resource, amount in amounts.items():
        try:
            capacity[resource] = _quantity(amount)
        except InvalidQuantityError as error:
            raise InternalError(f"{where}.capacity.{resource}: {error.message}") from None
    return Shape(name=name, capacity=capacity, labels=labels, taints=taints)


def _taints(entries: object, where: str) -> tuple[Taint, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise InternalError(f"{where} must be a list, not {shown(entries)}")
    return tuple(_taint(entry, f"{where}[{index}]") for index, entry in enumerate(entries))


def _taint(data: object, where: str) -> Taint:
    fields = Fields(data, where)
    taint = Taint(
        key=fields.text("key", may_be_empty=False),
        value=fields.optional_text("value") or "",
        effect=fields.text("effect"),
    )
    if taint.effect not in TAINT_EFFECTS:
        raise fields.wrong("effect", f"one of {', '.join(TAINT_EFFECTS)}", taint.effect)
    fields.end()
    return taint


def _quantity(amount: object) -> Quantity:
    if isinstance(amount, str | int):
        return Quantity(amount)
    if isinstance(amount, Decimal):  # such as 1.5, which was read exactly
        return Quantity(str(amount))
    raise InvalidQuantityError(f'{shown(amount)} is not a quantity: write it like "4", "500m" or "8Gi"')


def _price(data: object, where: str) -> Price:
    fields = Fields(data, where)
    value = fields.take("hourly")
    expected = 'a number that is not negative, best in quotes, such as "0.05"'
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            raise fields.wrong("hourly", expected, value)
        hourly = Decimal(value)
    except InvalidOperation:
        raise fields.wrong("hourly", expected, value) from None
    if not hourly.is_finite() or hourly < 0:
        raise fields.wrong("hourly", expected, value)
    price = Price(
        shape=fields.text("shape", may_be_empty=False),
        hourly=hourly,
        currency=fields.text("currency", may_be_empty=False),
    )
    fields.end()
    return price


def _begin(raw: bytes) -> str:
    return shown(raw[:_LOOKED_AT].decode("utf-8", "replace").strip())


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _no_twins(pairs: Sequence[tuple[str, object]]) -> Json:
    """An object. With two lists of machines, say of two pages, one would be lost, and its machines taken for gone."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {shown(twice)} twice")
    return found
