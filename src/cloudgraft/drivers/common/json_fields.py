"""Reading a JSON object that came from outside, key by key: everything is checked, and what nobody knows is refused."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from cloudgraft.drivers.common.secrets import CUT
from cloudgraft.sdk.errors import InternalError
from cloudgraft.sdk.secrecy import redacted

__all__ = ["QUOTED", "Fields", "Json", "hint", "shown"]

Json = dict[str, object]

QUOTED: Final = 80  # characters of a wrong value that a message repeats


class Fields:
    """An object from outside. Take what is known, then call :meth:`end`."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise InternalError(f"{where} must be a JSON object, not {shown(data)}")
        self._data: Json = data
        self._where = where
        self._known: list[str] = []

    def take(self, key: str) -> object:
        """The value; None when it is not given or null."""
        self._known.append(key)
        return self._data.get(key)

    def text(self, key: str, *, may_be_empty: bool = True) -> str:
        """A text that must be there."""
        value = self.take(key)
        if isinstance(value, str) and (value or may_be_empty):
            return value
        raise self.wrong(key, "a text" if may_be_empty else "a text that is not empty", value)

    def optional_text(self, key: str) -> str | None:
        """A text, or None."""
        value = self.take(key)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(key, "a text", value)

    def mapping(self, key: str) -> Json:
        """An object; an empty one when it is not given."""
        value = self.take(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object", value)
        return value

    def texts(self, key: str) -> dict[str, str]:
        """An object of texts."""
        entries: dict[str, str] = {}
        for name, value in self.mapping(key).items():
            if not isinstance(value, str):
                raise self.wrong(f"{key}.{name}", "a text", value)
            entries[name] = value
        return entries

    def list_of_texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; an empty one when it is not given."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(key, "a list of texts", value)
        return tuple(value)

    def end(self) -> None:
        """Refuses the keys that nobody took: a misspelt providerID would show only when no node is ever found."""
        unknown = [key for key in self._data if key not in self._known]
        if unknown:
            raise InternalError(
                f"{self._where} has the unknown key {shown(unknown[0])}; {hint(unknown[0], self._known)}"
            )

    def wrong(self, key: str, expected: str, value: object) -> InternalError:
        """The error for a value that is not what it must be."""
        found = "missing" if value is None else shown(value)
        if expected.startswith("a text") and isinstance(value, int | Decimal):
            found = f"{found}, without quotation marks"
        return InternalError(f"{self._where}.{key} must be {expected}; it is {found}")


def shown(value: object) -> str:
    """A value as a message quotes it: escaped, and not longer than a line."""
    if isinstance(value, str | bool | int | Decimal | None):
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, int | Decimal) else _digits(value)
    else:
        text = "a list" if isinstance(value, list) else "an object"
    text = redacted(text)  # before it is cut: half of a secret is not known as such
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}{CUT}"


def _digits(value: int | Decimal) -> str:
    try:
        return str(value).lower()
    except ValueError:  # more digits than Python prints
        return "a very large number"


def hint(key: str, known: Iterable[str]) -> str:
    """What was probably meant, or what there is."""
    names = list(known)
    close = difflib.get_close_matches(key[:QUOTED].lower(), [name.lower() for name in names], n=1)
    meant = [name for name in names if close and name.lower() == close[0]]
    return f"did you mean {meant[0]!r}?" if meant else f"known here: {', '.join(names)}"
