"""Reads untrusted JSON: checks every key and value, and says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeVar

from cloudgraft import json_codec
from cloudgraft.drivers.common.secrets import CUT
from cloudgraft.json_codec import OBJECT, Codec, Form, Key, Mistake, chosen, entries, expecting, items, parsed, record
from cloudgraft.sdk.common.nearest import nearest
from cloudgraft.sdk.errors import CloudgraftError, InternalError
from cloudgraft.sdk.flaws import FlawedError
from cloudgraft.sdk.secrecy import redacted

T = TypeVar("T")
Json = dict[str, object]

QUOTED: Final = 80  # characters of a wrong value that a message repeats


# -- forms -------------------------------------------------------------------------------------------------------------


def foreign(make: Callable[..., T], *, is_closed: bool = True, **fields: Form[Any] | Key) -> Form[T]:
    """Describes an untrusted object. Null counts as a missing key.

    Unknown keys are refused: a misspelt providerID would show only when no node is ever found.
    """
    return record(make, fields, is_closed=is_closed, missing_is_null=True)


def mapping(form: Form[T]) -> Form[Mapping[str, T]]:
    """Describes an object with any keys."""
    return chosen(expecting("an object", OBJECT), entries(form))


def one_of(words: Iterable[str], make: Callable[[str], T], write: Callable[[T], str] = str) -> Form[T]:
    """Describes a text that is one of these words."""
    return chosen(TEXT, expecting(f"one of {', '.join(words)}", parsed(make, write)))


def a_time(expected: str = "a time with its zone", *, may_be_empty: bool = False) -> Form[datetime | None]:
    """Describes a time in ISO 8601; an empty text, if allowed, is None."""

    def read(text: str) -> datetime | None:
        return None if may_be_empty and not text else _zoned(text)

    return chosen(TEXT, expecting(expected, parsed(read, datetime.isoformat)))


def _zoned(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    try:
        is_time = time.tzinfo is not None and time.timestamp() is not None
    except (OverflowError, OSError):
        is_time = False
    if not is_time:
        raise ValueError(text)
    return time


def _filled(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


TEXT: Final = expecting("a text", json_codec.TEXT)
FILLED: Final = expecting("a text that is not empty", parsed(_filled))
PATH: Final = chosen(TEXT, parsed(Path))
TEXTS: Final = mapping(TEXT)
LIST_OF_TEXTS: Final = expecting("a list of texts", items(json_codec.TEXT))


# -- messages ----------------------------------------------------------------------------------------------------------


def reader(form: Form[T], *, between: str = ".") -> Codec[T]:
    """Reads objects of that form; in messages ``between`` separates the object's name from the place in it."""

    def explained(what: str, mistake: Mistake) -> CloudgraftError:
        if isinstance(mistake.error, FlawedError):  # the class of the value has its own messages
            return mistake.error
        where = f"{what}{between}{mistake.place}" if mistake.path else what
        return InternalError(f"{where}{_words(mistake)}")

    return Codec(form, explained)


def _words(mistake: Mistake) -> str:
    value = mistake.value
    if mistake.unknown_key is not None:
        return f" has the unknown key {shown(mistake.unknown_key)}; {hint(mistake.unknown_key, mistake.known)}"
    if mistake.expected:
        found = "missing" if value is None else shown(value)
        if mistake.expected.startswith("a text") and isinstance(value, int | Decimal):
            found = f"{found}, without quotation marks"
        return f" must be {mistake.expected}; it is {found}"
    if isinstance(mistake.error, CloudgraftError):
        return f": {mistake.error.message}"
    return f" must be {'a list' if mistake.kind == 'list_type' else 'a JSON object'}, not {shown(value)}"


def shown(value: object) -> str:
    """Quotes a value for a message: escaped, and not longer than a line."""
    if isinstance(value, str | bool | int | Decimal | None):
        text = json.dumps(value, ensure_ascii=False) if not isinstance(value, int | Decimal) else _digits(value)
    else:
        text = "a list" if isinstance(value, list) else "an object"
    text = redacted(text)  # before it is cut: half a secret would not be recognized
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}{CUT}"


def _digits(value: int | Decimal) -> str:
    try:
        return str(value).lower()
    except ValueError:  # more digits than Python prints
        return "a very large number"


def hint(key: str, known: Iterable[str]) -> str:
    """Returns the key that was probably meant, or the known keys."""
    names = list(known)
    close = nearest(key, names, fold=str.lower)
    return f"did you mean {close!r}?" if close else f"known here: {', '.join(names)}"
