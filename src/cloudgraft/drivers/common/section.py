"""Reads a ``machine:`` section into a dataclass of settings, and checks it again.

A driver gets a group's ``machine:`` section as it was in the file. It was checked when the file was read. But an order
may come from a journal, and the driver may be a newer release; so it is checked again, with the same types.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from cloudgraft.drivers.common.json_fields import hint
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import FlawedError

T = TypeVar("T")
_WORDS: Final[Mapping[Any, str]] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Decimal: "a number",
}


def read_section(cls: type[T], given: object, where: str = "machine") -> T:
    """Builds an object of ``cls`` from its keys in camelCase; raises InvalidArgumentError that says what is wrong."""
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"{where} must be a mapping")
    fields = {_camel(field.name): field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # it is one
    hints = typing.get_type_hints(cls)
    _refuse_unknown([str(key) for key in given], list(fields), where)
    values = {
        field.name: _value(hints[field.name], given[key], f"{where}.{key}")
        for key, field in fields.items()
        if given.get(key) is not None
    }
    for key, field in fields.items():
        if field.name not in values and _is_needed(field):
            raise InvalidArgumentError(f"{where}.{key} is missing")
    try:
        return cls(**values)
    except FlawedError as error:
        raise error.below(where) from None
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error.message}") from None


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _is_needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _refuse_unknown(given: Sequence[str], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidArgumentError(f"{where}.{key} is not known; {hint(key, known)}")


def _value(annotation: Any, value: object, where: str) -> object:
    kinds = [arg for arg in _kinds(annotation) if arg is not types.NoneType]
    if len(kinds) > 1:  # plain ones, such as str | int
        if any(_fits(kind, value) for kind in kinds):
            return value
        raise InvalidArgumentError(f"{where} must be {' or '.join(_WORDS[kind] for kind in kinds)}")
    return _of(kinds[0], value, where)


def _kinds(annotation: Any) -> Sequence[Any]:
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    return typing.get_args(annotation) if is_union else (annotation,)


def _of(kind: Any, value: object, where: str) -> object:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return read_section(typing.cast("type[Any]", kind), value, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise InvalidArgumentError(f"{where} must be a mapping")
        return {_of(args[0], key, f"a key of {where}"): _value(args[1], value[key], f"{where}.{key}") for key in value}
    if origin is not None and issubclass(origin, Sequence):
        if not isinstance(value, list | tuple):
            raise InvalidArgumentError(f"{where} must be a list")
        return [_value(args[0], one, f"{where}[{index}]") for index, one in enumerate(value)]
    return _plain(kind, value, where)


def _plain(kind: Any, value: object, where: str) -> object:
    if kind in (object, Any) or _fits(kind, value):
        return value
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        words = [member.value for member in kind]
        if value in words:
            return kind(value)
        raise InvalidArgumentError(f"{where} must be one of {', '.join(map(str, words))}")
    if kind is Decimal and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return Decimal(str(value))
        except InvalidOperation:
            pass
    raise InvalidArgumentError(f"{where} must be {_WORDS.get(kind, 'something else')}")


def _fits(kind: Any, value: object) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)
