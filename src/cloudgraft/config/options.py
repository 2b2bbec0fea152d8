"""Validates the options of a provider or driver: their author chooses them, the same rules apply to them.

An author declares them in a dataclass or a pydantic model; the file has them in camelCase. Unknown keys are
refused, at any depth. A ``Path``, or a string in a field named ``…_file`` or ``…_dir``, is relative to the file; a
``timedelta`` is written as a duration. An author without options declares a dataclass without fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from cloudgraft.config.explain import explain, item_type, keys_of, unknown_key, unwrap
from cloudgraft.config.model import Where
from cloudgraft.config.problems import ConfigError, KeyPath, Problem
from cloudgraft.config.section import hide_secrets
from cloudgraft.config.sections.groups import Group
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.sdk.errors import CloudgraftError, InternalError
from cloudgraft.sdk.flaws import Flaw, FlawedError

T = TypeVar("T")


def parse_options(options_type: type[T], data: Mapping[str, Any], where: Where) -> T:
    """An object of ``options_type``, made from the values in the file at ``where``.

    Raises ConfigError with all problems, each with its file and line. Problems that a section's own ``__post_init__``
    finds are reported together with wrong types elsewhere, but not with those of the same section or below it: pydantic
    makes an object only of valid values, so ``__post_init__`` does not run before.
    """
    hide_secrets(data)
    try:
        adapter: TypeAdapter[T] = TypeAdapter(options_type)
        reader = _Reader(where)
        prepared = reader.prepare(options_type, dict(data), ())
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        name = options_type.__qualname__
        raise InternalError(f"the options type {name} cannot be read from a file: {error}") from error
    try:
        options = adapter.validate_python(prepared)
    except ValidationError as error:
        found = explain(error.errors(include_url=False), where.document, options_type, where.path)
        reported = {problem.key for problem in reader.problems}  # a wrong duration is reported already, and made 0
        found = (problem for problem in found if problem.key not in reported)
        raise ConfigError([*reader.problems, *found]) from None  # the cause would carry the values
    except CloudgraftError as error:  # raised by the author's __post_init__
        raise ConfigError([*reader.problems, *refusals(error, where)]) from None
    if reader.problems:
        raise ConfigError(reader.problems)
    return options


def refusals(error: CloudgraftError, where: Where) -> list[Problem]:
    """The problems that a driver or a provider finds in its values at ``where``."""
    flaws = error.flaws if isinstance(error, FlawedError) else [Flaw((), error.message)]
    return [where.document.problem((*where.path, *flaw.path), flaw.message) for flaw in flaws]


def machine_settings(settings_type: type | None, group: Group, where: Where) -> dict[str, object]:
    """A group's `machine:` section as its driver gets it: as it is in the file, but with absolute paths.

    ``settings_type`` is the driver's ``MachineSettings``, which validates the section; None accepts it as it is.
    ``where`` is the group's place: ``config.where("nodeGroups", group.index)``. Raises ConfigError with all problems.
    """
    if settings_type is None:
        return dict(group.machine)
    strange = [key for key in group.spread if key not in keys_of(settings_type)]
    problems = [
        where.document.problem((*where.path, f"{key}s"), f"the machines of this driver have no {key}", "remove it")
        for key in strange
    ]
    own = {key: value for key, value in group.machine.items() if key not in strange}
    try:
        settings: object = parse_options(settings_type, own, dataclasses.replace(where, path=(*where.path, "machine")))
        problems += _wrong_size(settings, group, where)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    absolute: dict[str, object] = _with_absolute_paths(settings_type, own, where.base_dir)
    return absolute


def _wrong_size(settings: object, group: Group, where: Where) -> Iterator[Problem]:
    """The driver's objections to the group's size, if it checks that."""
    check = getattr(settings, "check_max_size", None)
    if check is None:
        return
    try:
        check(group.max_size)
    except CloudgraftError as error:
        yield where.document.problem((*where.path, "maxSize"), error.message)


def checked_section(settings_type: type | None, section: Mapping[str, Any], where: Where) -> dict[str, object]:
    """A section at ``where``, validated by a type, as it is in the file but with absolute paths."""
    if settings_type is None:
        return dict(section)
    parse_options(settings_type, section, where)
    absolute: dict[str, object] = _with_absolute_paths(settings_type, dict(section), where.base_dir)
    return absolute


def _with_absolute_paths(annotation: Any, value: Any, base_dir: Path, field: str = "") -> Any:
    kind = unwrap(annotation)
    if isinstance(value, str) and _is_path(kind, field, value):
        return str(base_dir / value)
    if isinstance(value, list):
        return [_with_absolute_paths(item_type(kind), item, base_dir) for item in value]
    if isinstance(value, dict):
        keys, other = keys_of(kind), item_type(kind)
        return {
            name: _with_absolute_paths(keys[name].annotation, item, base_dir, keys[name].field)
            if name in keys
            else _with_absolute_paths(other, item, base_dir)
            for name, item in value.items()
        }
    return value


def _is_path(kind: Any, field: str, value: str) -> bool:
    return kind is Path or (kind is str and value != "" and field.endswith(("_file", "_dir")))


class _Reader:
    """Walks values and types side by side and converts the values to the form that pydantic expects."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self.problems: list[Problem] = []

    def prepare(self, annotation: Any, value: Any, path: KeyPath, field: str = "") -> Any:
        kind = unwrap(annotation)
        if isinstance(value, str):
            return self._text(kind, value, path, field)
        if kind is timedelta and isinstance(value, int | float) and not isinstance(value, bool):
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
        if not _is_path(kind, field, value):
            return value
        absolute = self._where.base_dir / value
        return absolute if kind is Path else str(absolute)

    def _mapping(self, kind: Any, value: dict[str, Any], path: KeyPath) -> dict[str, Any]:
        keys = keys_of(kind)
        if not isinstance(kind, type) or not (dataclasses.is_dataclass(kind) or issubclass(kind, BaseModel)):
            return {name: self.prepare(item_type(kind), item, (*path, name)) for name, item in value.items()}
        prepared: dict[str, Any] = {}
        for name, item in value.items():
            if name in keys:
                key = keys[name]
                # A model knows its own aliases; a dataclass has none.
                own = key.field if dataclasses.is_dataclass(kind) else name
                prepared[own] = self.prepare(key.annotation, item, (*path, name), key.field)
            else:
                full = (*self._where.path, *path, name)
                self.problems.append(unknown_key(self._where.document, full, list(keys)))
        return prepared

    def _report(self, path: KeyPath, message: str, suggestion: str) -> None:
        self.problems.append(self._where.document.problem((*self._where.path, *path), message, suggestion))
