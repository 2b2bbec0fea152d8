"""Describes the options and machine settings that a class declares: keys, types, defaults and what they are for.

A dataclass has the purpose of a field as a comment beside it, and a pydantic model has it as its description.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from cloudgraft.plugins.field_comments import fields_in
from cloudgraft.validation.explain import item_type, keys_of, unwrap

_MISSING = dataclasses.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescription:
    """One key of a section, with its path from the top: ``shapes.NAME.cpu``."""

    key: str
    type: str
    default: str  # empty for none
    is_required: bool
    purpose: str


def describe(section: Any, before: str = "") -> Iterator[FieldDescription]:
    """Describes each key of a section, and those of the sections in it; nothing for a type without declared keys."""
    purposes = _purposes(section) if keys_of(section) else {}
    for name, key in keys_of(section).items():
        inner = unwrap(key.annotation)
        of_items = item_type(inner)
        below = inner if keys_of(inner) else unwrap(of_items) if of_items is not None else None
        default = _default_of(section, key.field)
        yield FieldDescription(
            key=f"{before}{name}",
            type=type_words(key.annotation),
            default="" if default is _MISSING else default_words(default),
            is_required=default is _MISSING,
            purpose=purposes.get(key.field, ""),
        )
        if keys_of(below) and before.count(".") < 1:
            yield from describe(below, f"{before}{name}{_inside(inner, below)}.")


def _inside(inner: Any, section: Any) -> str:
    """How a path goes on: into a section, into each of a list, or into each of a mapping with names of its own."""
    if section is inner:
        return ""
    origin = getattr(inner, "__origin__", None)
    return ".NAME" if isinstance(origin, type) and issubclass(origin, Mapping) else "[]"


def type_words(annotation: Any) -> str:
    """A type in a reader's words."""
    plain = unwrap(annotation)
    words: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "boolean", Path: "path"}
    words[timedelta] = "duration"
    if plain in words:
        return words[plain]
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in plain)
    origin = getattr(plain, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "mapping"
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return f"list of {type_words(plain.__args__[0])}"
    if keys_of(plain):
        return "section"
    args = [arg for arg in getattr(plain, "__args__", ()) if arg is not type(None)]
    return " or ".join(dict.fromkeys(type_words(arg) for arg in args)) or str(getattr(plain, "__name__", plain)).lower()


def default_words(value: Any) -> str:
    """A default in a reader's words; empty for one that says nothing."""
    if value is None or value in ("", (), [], {}):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    return f"`{getattr(value, 'value', value)}`"


def _default_of(section: Any, name: str) -> Any:
    """The default of a field; None for one that a function makes, and MISSING for a required field."""
    cls = unwrap(section)
    if issubclass(cls, BaseModel):
        info = cls.model_fields[name]
        if info.is_required():
            return _MISSING
        return None if info.default is PydanticUndefined else info.default
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return None if field.default_factory is not _MISSING else field.default


def _purposes(section: Any) -> dict[str, str]:
    cls = unwrap(section)
    if issubclass(cls, BaseModel):
        return {name: field.description or "" for name, field in cls.model_fields.items()}
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            found |= _comments(base)
    return found


def _comments(cls: Any) -> dict[str, str]:
    """The comments beside each field, or above it. Empty when the source is not there."""
    try:
        return {field.name: _sentence(field.text) for field in fields_in(inspect.getsource(cls))}
    except (OSError, TypeError, SyntaxError):
        return {}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
