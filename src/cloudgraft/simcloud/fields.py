"""Reads data from outside key by key: a request, chaos, a group's ``machine:`` section.

Everything is checked, and unknown keys are refused: a misspelt fault that is silently ignored would make a test pass
that tests nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeGuard

from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import InvalidArgumentError

_LONGEST = 256  # characters of a text; names, tags and labels of real clouds are shorter
_MOST = 64  # entries of a mapping
_LARGEST = 1e9  # seconds: thirty years


def shown(value: object) -> str:
    """A value as a message quotes it: escaped, and not longer than a line."""
    quoted = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return quoted if len(quoted) <= 60 else quoted[:60] + "…"


def is_number(value: object) -> TypeGuard[int | float]:
    """True for what JSON calls a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: object, where: str, *, most: float = _LARGEST) -> float:
    """A finite number from 0 to ``most``."""
    if is_number(value) and math.isfinite(value) and 0 <= value <= most:
        return float(value)
    raise InvalidArgumentError(f"{where} must be a number from 0 to {most:g}, not {shown(value)}")


def count(value: object, where: str) -> int:
    """A whole number, not negative."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    raise InvalidArgumentError(f"{where} must be a whole number from 0 to {_LARGEST:g}, not {shown(value)}")


def text(value: object, where: str, *, longest: int = _LONGEST) -> str:
    """Printable text of a bounded length; it may be empty."""
    if isinstance(value, str) and len(value) <= longest and value.isprintable():
        return value
    raise InvalidArgumentError(f"{where} must be printable text of at most {longest} characters, not {shown(value)}")


class Fields:
    """A mapping from outside. Take what is known, then call :meth:`end`."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise InvalidArgumentError(f"{where} must be a mapping of names to values, not {shown(data)}")
        self._data: dict[str, object] = dict(data)
        self._where = where
        self._known: list[str] = []

    def take(self, key: str) -> object:
        """The value, or None when it is not given."""
        self._known.append(key)
        return self._data.get(key)

    def text(self, key: str, *, longest: int = _LONGEST) -> str:
        """The text, or an empty one."""
        value = self.take(key)
        return "" if value is None else text(value, self.path(key), longest=longest)

    def required(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if not value:
            raise InvalidArgumentError(f"{self.path(key)} is missing")
        return value

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of text to text, or an empty one."""
        value = self.take(key)
        entries = {} if value is None else Fields(value, self.path(key))._data  # noqa: SLF001 - the same class
        if len(entries) > _MOST:
            raise InvalidArgumentError(f"{self.path(key)} has {len(entries)} entries; at most {_MOST} are kept")
        where = self.path(key)
        return {text(name, f"a key of {where}"): text(item, f"{where}.{shown(name)}") for name, item in entries.items()}

    def items(self, key: str) -> list[tuple[str, object]]:
        """The entries of a list, each with where it stands."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple) or len(value) > _MOST:
            raise InvalidArgumentError(f"{self.path(key)} must be a list of at most {_MOST} entries")
        return [(f"{self.path(key)}[{index}]", item) for index, item in enumerate(value)]

    def path(self, key: str) -> str:
        """The key with all that it stands in, for a message."""
        return f"{self._where}.{key}"

    def end(self) -> None:
        """Refuses the keys that were not taken."""
        unknown = [key for key in self._data if key not in self._known]
        if unknown:
            raise InvalidArgumentError(
                f"{self._where}: unknown key {shown(unknown[0])}; {_hint(unknown[0], self._known)}"
            )


def _hint(key: str, known: Iterable[str]) -> str:
    close = nearest(key, known)
    return f"did you mean {close!r}?" if close else f"known here: {', '.join(sorted(known))}"
