"""Converts machines, shapes, prices and errors to and from JSON for scripts (`exec`) and endpoints (`http`).

Keys are in camelCase; ``machineID`` and ``providerID`` are spelt as in Kubernetes. Every key of received JSON is
checked. Invalid JSON is an InternalError, which leaves the outcome of a call open: a script that prints half a response
may have created a machine, and a list settles it (law 3).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any, Final, NoReturn, TypeVar

from cloudgraft import documents
from cloudgraft.drivers.common.json_fields import (
    FILLED,
    LIST_OF_TEXTS,
    TEXT,
    TEXTS,
    Json,
    a_time,
    foreign,
    hint,
    mapping,
    one_of,
    reader,
    shown,
)
from cloudgraft.json_codec import Key, chosen, expecting, items, maybe, parsed, taken
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Price, Shape
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError, error_from_slug, error_table
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.types import TAINT_EFFECTS, Taint

_MOST_BYTES: Final = 1 << 30  # transports have their own, lower limits
_LOOKED_AT: Final = 4096  # bytes: more than is shown, so that no secret is cut before it is hidden
_LONG: Final = 1 << 16  # bytes; a longer response is parsed in a thread

T = TypeVar("T")


# -- forms -------------------------------------------------------------------------------------------------------------


def _or_none(text: str) -> str | None:
    return text or None


def _code_message(*, code: str, message: str, retry_after: str | None = None) -> tuple[str, str, str | None]:
    return code, message, retry_after


def _effect(text: str) -> str:
    if text not in TAINT_EFFECTS:
        raise ValueError(text)
    return text


def _amount(amount: object) -> Quantity:
    if isinstance(amount, str | int):
        return Quantity(amount)
    if isinstance(amount, Decimal):  # such as 1.5, which was read exactly
        return Quantity(str(amount))
    raise InvalidQuantityError(f'{shown(amount)} is not a quantity: write it like "4", "500m" or "8Gi"')


def _hourly(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError(value)  # noqa: TRY004 - the form makes the message
    try:
        hourly = Decimal(value)
    except InvalidOperation:
        raise ValueError(value) from None
    if not hourly.is_finite() or hourly < 0:
        raise ValueError(value)
    return hourly


def _shape(*, capacity: Mapping[str, Quantity] | None = None, **rest: Any) -> Shape:
    return Shape(capacity=capacity or {}, **rest)


def _page(*, machines: Sequence[Machine], token: str = "") -> tuple[Sequence[Machine], str]:
    return machines, token


def _only(*, one: Any) -> Any:
    return one


_TIME: Final = a_time("a time with its zone, such as 2026-01-31T12:00:00Z", may_be_empty=True)
_MACHINE: Final = foreign(
    Machine,
    name=TEXT,
    machine_id=Key(FILLED, "machineID"),
    provider_id=Key(maybe(chosen(TEXT, parsed(_or_none))), "providerID"),
    state=maybe(one_of([state.value for state in MachineState], MachineState, attrgetter("value"))),
    tags=maybe(TEXTS),
    created_at=Key(maybe(_TIME), "createdAt"),
    reason=maybe(TEXT),
    addresses=maybe(LIST_OF_TEXTS),
    failure=maybe(TEXT),
)
_TAINT: Final = foreign(Taint, key=FILLED, value=maybe(TEXT), effect=one_of(TAINT_EFFECTS, _effect))
_SHAPE: Final = foreign(
    _shape,
    name=FILLED,
    capacity=maybe(mapping(taken(_amount, str))),
    labels=maybe(TEXTS),
    taints=maybe(items(_TAINT)),
)
_HOURLY: Final = expecting('a number that is not negative, best in quotes, such as "0.05"', taken(_hourly, str))
_PRICE: Final = foreign(Price, hourly=_HOURLY, shape=FILLED, currency=FILLED)

_ONE_MACHINE: Final = reader(_MACHINE)
_ERROR: Final = reader(foreign(_code_message, code=FILLED, message=TEXT, retry_after=Key(maybe(TEXT), "retryAfter")))
# Responses.
_CREATED: Final = reader(foreign(_only, one=Key(_MACHINE, "machine")), between=": ")
_LIST: Final = reader(foreign(_only, one=Key(items(_MACHINE), "machines")), between=": ")
_PAGE: Final = reader(foreign(_page, machines=items(_MACHINE), token=Key(maybe(TEXT), "nextPageToken")), between=": ")
_SHAPES: Final = reader(foreign(_only, one=Key(items(_SHAPE), "shapes")), between=": ")
_PRICES: Final = reader(foreign(_only, one=Key(items(_PRICE), "prices")), between=": ")


# -- out ---------------------------------------------------------------------------------------------------------------


def spec_to_json(spec: MachineSpec) -> Json:
    """Converts the machine to create. The result holds secrets: ``userData``."""
    return {
        "name": spec.name,
        "group": spec.group,
        "settings": dict(spec.settings),
        "tags": dict(spec.tags),
        "userData": spec.user_data,
    }


def machine_to_json(machine: Machine) -> Json:
    """Converts a machine as it was last seen; :func:`machine_from_json` reads the same."""
    return _ONE_MACHINE.write(machine)


def dump_json(data: Mapping[str, object]) -> bytes:
    """Writes one line of UTF-8; raises InvalidArgumentError for values without JSON form, such as a date from YAML."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"this cannot be written as JSON: {error}; put it in quotes") from None


# -- in ----------------------------------------------------------------------------------------------------------------


def parse_json(raw: bytes, what: str) -> object:
    """Parses one JSON value; ``what`` names its origin in messages. Numbers with a point are exact (Decimal)."""
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


async def read_off_loop(read: Callable[[bytes], T], raw: bytes) -> T:
    """Parses a response; a long one in a thread, so that it does not block the event loop."""
    return await asyncio.to_thread(read, raw) if len(raw) > _LONG else read(raw)


def created_from_json(data: object, name: str, what: str = "the answer") -> Machine:
    """Reads the ``machine`` of a create response; ``name`` is the requested one."""
    machine: Machine = _CREATED.read(data, what)
    if machine.name != name:
        raise InternalError(
            f"{what}: machine.name is {shown(machine.name)}, but {name!r} was to be created. If a machine with the "
            "wrong name was made, delete it by hand; answer with the name that was asked for"
        )
    return machine


def machines_from_json(data: object, what: str = "the answer") -> list[Machine]:
    """Reads the ``machines`` of a list response."""
    return _distinct(_LIST.read(data, what), what)


def page_from_json(data: object, what: str = "the answer") -> tuple[list[Machine], str]:
    """Reads the ``machines`` of a page and its ``nextPageToken``, which is empty on the last page."""
    machines, token = _PAGE.read(data, what)
    return _distinct(machines, what), token


def _distinct(machines: Sequence[Machine], what: str) -> list[Machine]:
    seen: set[str] = set()
    for machine in machines:
        if machine.machine_id in seen:
            raise InternalError(f"{what}: two of the machines have the machineID {shown(machine.machine_id)}")
        seen.add(machine.machine_id)
    return list(machines)


def machine_from_json(data: object, where: str = "machine") -> Machine:
    """Reads one machine. Only ``name`` and ``machineID`` are required; without ``state`` it is running."""
    return _ONE_MACHINE.read(data, where)


def shapes_from_json(data: object, what: str = "the answer") -> list[Shape]:
    """Reads the ``shapes`` of a response."""
    return list(_SHAPES.read(data, what))


def prices_from_json(data: object, what: str = "the answer") -> list[Price]:
    """Reads the ``prices`` of a response."""
    return list(_PRICES.read(data, what))


def error_from_json(data: object, what: str = "the answer") -> CloudgraftError | None:
    """Reads the error of a response as an exception to raise; None when the response has no error.

    ``{"error": {"code": "out_of_stock", "message": "no more of m5", "retryAfter": "30s"}}``, with the slugs of
    :mod:`cloudgraft.sdk.errors` as codes.
    """
    if not isinstance(data, Mapping) or data.get("error") is None:
        return None
    try:
        code, message, retry_after = _ERROR.read(data["error"], f"{what}: error")
    except InternalError as error:
        return error
    kind = error_from_slug(code)
    if kind is None:
        known = [error.slug for error in error_table()]
        return InternalError(f"{what}: error.code is {shown(code)}; {hint(code, known)}. It said: {message}")
    message = message or kind.meaning
    if retry_after is None:
        return kind(message)
    try:
        return kind(message, retry_after=max(0.0, parse_duration(retry_after).total_seconds()))
    except ValueError:  # the class matters more than the hint
        return kind(f"{message} (its retryAfter, {shown(retry_after)}, is not a duration such as 30s)")


def _begin(raw: bytes) -> str:
    return shown(raw[:_LOOKED_AT].decode("utf-8", "replace").strip())


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _no_twins(pairs: Sequence[tuple[str, object]]) -> Json:
    """Refuses duplicate keys. Of two lists of machines, one would be lost, and its machines would count as gone."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {shown(twice)} twice")
    return found
