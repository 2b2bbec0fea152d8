"""JSON that was read from the journal, with words for what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

__all__ = ["At"]

T = TypeVar("T")


class At:
    """A mapping that was read, and where it is: each getter gives a value of the right kind or says what is wrong."""

    def __init__(self, data: object, what: str, path: str = "") -> None:
        self._what = what
        self._path = path
        if not isinstance(data, Mapping):
            raise self._unreadable(path, _kind(data))
        self._data = data
        self.keys = list(data)

    def value(self, key: str, kind: type[T]) -> T:
        """A value of that kind."""
        found = self._data.get(key)
        if kind is float and isinstance(found, int) and not isinstance(found, bool):
            found = float(found)  # whoever wrote 1.0 as 1
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise self._unreadable(self._below(key), _kind(found))
        return found

    def text(self, key: str) -> str:
        """Text."""
        return self.value(key, str)

    def parsed(self, key: str, parse: Callable[[str], T]) -> T:
        """Text that means something else."""
        try:
            return parse(self.text(key))
        except ValueError as error:
            raise self._unreadable(self._below(key), f"is wrong: {error}") from error

    def inner(self, key: str) -> At:
        """The mapping under that key."""
        return At(self._data.get(key), self._what, self._below(key))

    def optional(self, key: str) -> At | None:
        """The mapping under that key, where there is one."""
        return None if self._data.get(key) is None else self.inner(key)

    def each(self, key: str) -> list[At]:
        """The mappings of a list."""
        items = self.value(key, list)
        return [At(item, self._what, f"{self._below(key)}[{index}]") for index, item in enumerate(items)]

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of text to text."""
        inner = self.inner(key)
        return {name: inner.text(name) for name in inner.keys}

    def amounts(self, key: str) -> dict[str, Quantity]:
        """A mapping of text to amounts."""
        inner = self.inner(key)
        return {name: inner.parsed(name, Quantity) for name in inner.keys}

    def taints(self, key: str) -> tuple[Taint, ...]:
        """A list of taints."""
        return tuple(
            Taint(key=taint.text("key"), value=taint.text("value"), effect=taint.text("effect"))
            for taint in self.each(key)
        )

    def _below(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _unreadable(self, path: str, why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._what} cannot be read: {path} {why}")


def _kind(value: object) -> str:
    return "is missing" if value is None else f"is of the wrong kind ({type(value).__name__})"
