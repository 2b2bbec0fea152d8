"""Looking into types: which keys a section has, and what stands under each of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Tag
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from cloudgraft.config.problems import KeyPath

__all__ = ["Key", "branches", "follow", "item_type", "keys_of", "unwrap"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a section: the field behind it, how pydantic calls it in errors, its type, and an example."""

    field: str
    location: str
    annotation: Any
    example: str = ""


def unwrap(annotation: Any) -> Any:
    """The type without ``Annotated`` and without ``| None``; a union of several types stays one."""
    if typing.get_origin(annotation) is Annotated:
        return unwrap(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        others = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return unwrap(others[0]) if len(others) == 1 else annotation
    return annotation


def keys_of(annotation: Any) -> dict[str, Key]:
    """The keys of a section by their names in the file; empty for a type that is no section."""
    section = unwrap(annotation)
    if not isinstance(section, type):
        return {}
    if issubclass(section, BaseModel):
        return {field.alias or name: _model_key(name, field) for name, field in section.model_fields.items()}
    if dataclasses.is_dataclass(section):
        hints = typing.get_type_hints(section, include_extras=True)
        names = [field.name for field in dataclasses.fields(section) if field.init]
        return {to_camel(name): Key(field=name, location=name, annotation=hints[name]) for name in names}
    return {}


def _model_key(name: str, field: FieldInfo) -> Key:
    example = str(field.examples[0]) if field.examples else ""
    return Key(field=name, location=field.alias or name, annotation=field.annotation, example=example)


def item_type(annotation: Any) -> Any:
    """What a list holds, or what a mapping with free keys has as values; None for anything else."""
    plain = unwrap(annotation)
    origin, args = typing.get_origin(plain), typing.get_args(plain)
    if not isinstance(origin, type) or not args:
        return None
    if issubclass(origin, Mapping):
        return args[1]
    return args[0] if issubclass(origin, Collection) else None


def branches(annotation: Any) -> dict[str, Any]:
    """The types of a union whose value says itself which of them it is, by their tags; empty for anything else."""
    plain = unwrap(annotation)
    if typing.get_origin(plain) not in {typing.Union, types.UnionType}:
        return {}
    tagged = [arg for arg in typing.get_args(plain) if typing.get_origin(arg) is Annotated]
    return {extra.tag: arg for arg in tagged for extra in typing.get_args(arg)[1:] if isinstance(extra, Tag)}


def follow(annotation: Any, location: tuple[str | int, ...]) -> tuple[KeyPath, Any]:
    """From pydantic's location of an error to the path in the file, and the type of what holds its last element.

    pydantic names the fields of a dataclass as Python does, and puts the branch it took of a union in between.
    """
    path: list[str | int] = []
    holder: Any = None
    here = annotation
    for part in location:
        tagged = branches(here)
        if part in tagged:
            here = tagged[str(part)]
            continue
        holder = here
        keys = keys_of(here)
        name = next((name for name, key in keys.items() if part == key.location), part)
        path.append(name)
        here = keys[str(name)].annotation if name in keys else item_type(here)
    return tuple(path), holder
