"""Provides the base class of all sections, converts them, and hides secrets that stand in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from cloudgraft.sdk.secrecy import hide, secret_values

T = TypeVar("T")


class Section(BaseModel):
    """A mapping with known keys, in camelCase; frozen, and without its values in errors.

    Values that depend on each other are checked by the validator of the last of them, which sees those before it in
    ``info.data``. A validator of the whole section would not run while any other key is wrong, and then not all
    problems would be reported at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True)


def changed_keys(old: Section, new: Section, ignored: Collection[str]) -> list[str]:
    """The keys whose values differ; ``ignored`` are names of fields."""
    fields = type(new).model_fields.items()
    return [
        info.alias or name for name, info in fields if name not in ignored and getattr(old, name) != getattr(new, name)
    ]


def convert(source: object, cls: type[T], **more: Any) -> T:
    """Builds the settings of another package from a section: fields of the same name are taken over.

    ``more`` are the fields with another name or form. ``cls`` is a dataclass.
    """
    names = [field.name for field in dataclasses.fields(cls) if field.name not in more and hasattr(source, field.name)]  # type: ignore[arg-type]  # a dataclass, as asked
    return cls(**{name: getattr(source, name) for name in names}, **more)


# -- secrecy -----------------------------------------------------------------------------------------------------------
# Secrets should be in files of their own. Those in the configuration file are at least shown nowhere.


def hide_secrets(options: object) -> None:
    """Hides all values below a key with the name of a secret, in the options of a driver or provider."""
    hide(*secret_values(options))
