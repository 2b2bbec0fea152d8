"""What is compared with the golden files: a fixed value, how it is written, and what is read from it again."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "forms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One kind of JSON. Its golden file has an entry for each case."""

    name: str  # of the golden file
    write: Callable[[Any], object] | None = None  # None: only others write it
    read: Callable[[Any], object] | None = None  # None: only others read it
    written: Mapping[str, object] = field(default_factory=dict)  # case -> what is written and, if we read it, read
    back: Mapping[str, object] = field(default_factory=dict)  # case -> what is read, where that is another value
    only_read: Mapping[str, object] = field(default_factory=dict)  # case -> the value of JSON that nobody writes today

    def expected(self) -> dict[str, object]:
        """What reading each case gives."""
        return {**self.written, **self.back, **self.only_read} if self.read is not None else {}


def golden(name: str) -> Any:
    """The content of a golden file."""
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def text_of(data: object) -> str:
    """JSON as a text in which 1, 1.0, true and "1" are different, and the order of keys is of no account."""
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False)


def told(value: object) -> object:
    """A value in words of JSON, told by nothing of ours: so that 1, 1.0 and Decimal("1.0") are different.

    A list for a tuple is no difference to anybody, nor is the order of a set.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {each.name: told(getattr(value, each.name)) for each in fields(value)}}
    if isinstance(value, Mapping):
        return {str(key): told(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    if isinstance(value, enum.Enum) or not isinstance(value, str | bool | int | float | None):
        return repr(value)
    return value
