"""Validates the options and machine settings of drivers and providers: the only validator for them.

Their author declares them: see :class:`cloudgraft.sdk.driver.DriverDeclarations`. Unknown keys are refused, at any
depth.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from cloudgraft.sdk.driver import Place
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import CloudgraftError, InternalError, InvalidArgumentError
from cloudgraft.sdk.flaws import Flaw, FlawedError
from cloudgraft.sdk.secrecy import hide, secret_values
from cloudgraft.validation.document import Document, Where
from cloudgraft.validation.explain import explain, item_type, keys_of, path_in_file, unknown_key, unwrap
from cloudgraft.validation.problems import ConfigError, KeyPath, Problem

T = TypeVar("T")
_NUMBERS: Final = (int, float, Decimal)
_IN_A_SPEC: Final = Where(document=Document.without_file("machine"), base_dir=Path(), path=("machine",))


def parse_options(
    options_type: type[T], data: Mapping[str, Any], where: Where, places: Mapping[Place, Path] | None = None
) -> T:
    """An object of ``options_type``, made from the values in the file at ``where``.

    ``places`` are the paths for fields that declare a :class:`Place` and have no value in the file.

    Raises ConfigError with all problems, each with its file and line. Problems that a section's own ``__post_init__``
    finds are reported together with wrong types elsewhere, but not with those of the same section or below it: pydantic
    makes an object only of valid values, so ``__post_init__`` does not run before.
    """
    hide(*secret_values(data))
    return _read(options_type, dict(data), _Reader(where, places or {}))


def read_settings(settings_type: type[T], settings: Mapping[str, object]) -> T:
    """An object of a driver's ``MachineSettings``, made from the ``settings`` of a MachineSpec. Null is a missing key.

    The rules are those of the file. But an order may come from a journal that another release has written, and the host
    of a plugin, or of a driver that dials in, does not know its class. Raises InvalidArgumentError with all problems.
    """
    try:
        return _read(settings_type, dict(settings), _Reader(_IN_A_SPEC, {}, skips_null=True))
    except ConfigError as error:
        raise InvalidArgumentError("; ".join(problem.text for problem in error.problems)) from None


def read_entry(entry_type: type[T], entry: object, where: Where) -> T:
    """An object of ``entry_type``, made from an entry of another file than the configuration. Null is a missing key.

    Raises FlawedError with all problems. They are texts without a path: a path would be one in the configuration.
    """
    hide(*secret_values(entry))
    try:
        return _read(entry_type, entry, _Reader(where, {}, skips_null=True))
    except ConfigError as error:
        raise FlawedError([Flaw((), str(problem)) for problem in error.problems]) from None


def _read(options_type: type[T], data: Any, reader: _Reader) -> T:
    where = reader.where
    try:
        adapter: TypeAdapter[T] = _adapter(cast("Any", options_type))
        prepared = reader.prepare(options_type, data, ())
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        name = options_type.__qualname__
        raise InternalError(f"the options type {name} cannot be read from a file: {error}") from error
    try:
        options = adapter.validate_python(prepared)
    except ValidationError as error:
        found = explain(error.errors(include_url=False), where.document, options_type, where.path)
        reported = {problem.key for problem in reader.problems}  # what is wrong with a duration is reported already
        found = (problem for problem in found if problem.key not in reported)
        raise ConfigError([*reader.problems, *found]) from None  # the cause would carry the values
    except CloudgraftError as error:  # raised by the author's __post_init__
        raise ConfigError([*reader.problems, *refusals(error, where, options_type)]) from None
    if reader.problems:
        raise ConfigError(reader.problems)
    return options


@functools.cache
def _adapter(options_type: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(options_type)


def refusals(error: CloudgraftError, where: Where, options_type: type | None = None) -> list[Problem]:
    """The problems that a driver or a provider finds in its values, which are an ``options_type`` at ``where``."""
    flaws = error.flaws if isinstance(error, FlawedError) else [Flaw((), error.message)]
    return [
        where.document.problem((*where.path, *path_in_file(options_type, flaw.path)), flaw.message) for flaw in flaws
    ]


def is_path(kind: Any, field: str, value: str) -> bool:
    """Whether a text in that field is a path, relative to the file."""
    return kind is Path or (kind is str and value != "" and field.endswith(("_file", "_dir")))


def _is_number(kind: Any) -> bool:
    """Whether the type is a number, or a union with one, and not a boolean too."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return any(one in _NUMBERS for one in kinds) and bool not in kinds


class _Reader:
    """Walks values and types side by side and converts the values to the form that pydantic expects."""

    def __init__(self, where: Where, places: Mapping[Place, Path], *, skips_null: bool = False) -> None:
        self.where = where
        self._places = places
        self._skips_null = skips_null
        self.problems: list[Problem] = []

    def prepare(self, annotation: Any, value: Any, path: KeyPath, field: str = "") -> Any:
        kind = unwrap(annotation)
        if isinstance(value, str):
            return self._text(kind, value, path, field)
        if isinstance(value, bool) and _is_number(kind):  # pydantic would take it for 0 or 1
            self._report(path, f"must be a number, not {str(value).lower()}")
        elif kind is timedelta and isinstance(value, int | float) and not isinstance(value, bool):
            self._report(path, "a duration needs a unit", "for example 5s")
        elif isinstance(value, list):
            return [self.prepare(item_type(kind), item, (*path, i)) for i, item in enumerate(value)]
        elif isinstance(value, dict):
            return self._mapping(kind, value, path)
        return value

    def _text(self, kind: Any, value: str, path: KeyPath, field: str) -> Any:
        if kind is timedelta:
            try:
                return parse_duration(value)
            except ValueError:
                self._report(path, "is not a duration", "for example 5s, 1m30s or 250ms")
                return timedelta(0)  # reported already; any valid value will do
        if not is_path(kind, field, value):
            return value
        absolute = self.where.base_dir / value
        return absolute if kind is Path else str(absolute)

    def _mapping(self, kind: Any, value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        keys = keys_of(kind)
        if not isinstance(kind, type) or not (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)):
            return {name: self.prepare(item_type(kind), item, (*path, name)) for name, item in value.items()}
        prepared: dict[str, Any] = {}
        for name, key in keys.items():
            # A model knows its own aliases; a dataclass has none.
            own = key.field if dataclasses.is_dataclass(kind) else name
            if key.place is not None and key.place in self._places and value.get(name) is None:
                prepared[own] = self._places[key.place]
            elif name in value and not (self._skips_null and value[name] is None):
                prepared[own] = self.prepare(key.annotation, value[name], (*path, name), key.field)
        for name in (name for name in value if name not in keys):
            full = (*self.where.path, *path, name)
            self.problems.append(unknown_key(self.where.document, full, list(keys)))
        return prepared

    def _report(self, path: KeyPath, message: str, suggestion: str = "") -> None:
        self.problems.append(self.where.document.problem((*self.where.path, *path), message, suggestion))
