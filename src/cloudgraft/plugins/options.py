"""Constructs the class of an entry point or a plugin with its validated options.

A class with an ``Options`` attribute (a dataclass or a pydantic model) gets an instance of it, any other class gets no
arguments. Options follow the rules of the whole configuration: keys are in camelCase, an error lists all problems at
once, and never repeats a value, which may be a secret.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from cloudgraft.config import Where, parse_options
from cloudgraft.config.document import Document
from cloudgraft.config.explain import keys_of
from cloudgraft.sdk.errors import InvalidArgumentError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a class, with its name in the configuration."""

    name: str
    is_required: bool


def construct(cls: type[T], options: Mapping[str, object]) -> T:
    """Constructs the class with these options; raises InvalidArgumentError that says what is wrong with them."""
    model = _model(cls)
    if model is None:
        if options:
            raise InvalidArgumentError(f"{cls.__name__} takes no options, but got: {', '.join(sorted(options))}")
        return cls()
    where = Where(document=Document.without_file("options"), base_dir=Path.cwd(), path=())
    # mypy knows only object(), not the constructor of this class.
    make: Any = cls
    made: T = make(parse_options(model, options, where))
    return made


def options_of(cls: type) -> tuple[Option, ...]:
    """Returns the options of a class, required ones first."""
    model = _model(cls)
    if model is None:
        return ()
    required = _required(model)
    found = [Option(name=name, is_required=key.field in required) for name, key in keys_of(model).items()]
    return tuple(sorted(found, key=lambda option: not option.is_required))


def _model(cls: type) -> type | None:
    model = getattr(cls, "Options", None)
    if model is None:
        return None
    if isinstance(model, type) and (dataclasses.is_dataclass(model) or issubclass(model, BaseModel)):
        return model
    raise InvalidArgumentError(f"{cls.__name__}.Options must be a dataclass or a pydantic model")


def _required(model: Any) -> set[str]:
    if issubclass(model, BaseModel):
        return {name for name, field in model.model_fields.items() if field.is_required()}
    missing = dataclasses.MISSING
    return {
        field.name
        for field in dataclasses.fields(model)
        if field.init and field.default is missing and field.default_factory is missing
    }
