"""Hides secrets: no log, no error and no journal shows them (law 9)."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

SHORTEST_TOKEN: Final = 16  # characters of a token that a caller authenticates with; a shorter one can be guessed
MASK: Final = "[secret]"
_SHORTEST: Final = 4  # characters; a shorter secret is easy to guess, and occurs by chance in many lines
_LONG: Final = 6  # characters; a secret of this length or more is hidden also within a word
_FEW: Final = 128  # up to this many forms are searched one by one; of more, only those whose beginning is in the text
_PIECE: Final = 16 * 1024  # characters of a long text that are searched together
_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")


@dataclass(frozen=True, slots=True)
class _Form:
    """One encoding of a secret."""

    text: str
    is_word: bool = False  # hidden only where it is not part of a longer word
    before: int = 0  # characters of base64 beside it that hold some bits of it
    after: int = 0


class _Hidden:
    """The registered secrets. Threads log at any time, so a lock serializes each change and each search."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: Counter[_Form] = Counter()  # how often each was hidden
        self._by_beginning: dict[str, set[_Form]] = {}  # without words, by their first characters
        self._all: Sequence[_Form] = ()  # the same while they are few, longest first
        self._words: re.Pattern[str] | None = None

    def __len__(self) -> int:
        return len(self._times)

    def count(self, forms: Iterable[_Form], step: int) -> None:
        with self._lock:
            changed = [form for form in forms if self._is_changed(form, step)]
            for form in changed:
                same = self._by_beginning.setdefault(form.text[:_SHORTEST], set())
                (same.add if step > 0 and not form.is_word else same.discard)(form)
                if not same:
                    del self._by_beginning[form.text[:_SHORTEST]]
            is_few = len(self._times) <= _FEW
            self._all = _longest_first(form for form in self._times if not form.is_word) if is_few else ()
            if any(form.is_word for form in changed):
                words = [_alone(form.text) for form in _longest_first(form for form in self._times if form.is_word)]
                self._words = re.compile("|".join(words)) if words else None

    def _is_changed(self, form: _Form, step: int) -> bool:
        """Updates the count of a form; returns whether this starts or ends hiding it."""
        was = self._times[form]
        self._times[form] = max(0, was + step)
        if not self._times[form]:
            del self._times[form]
        return (was > 0) != (form in self._times)

    def likely(self, text: str) -> tuple[Sequence[_Form], re.Pattern[str] | None]:
        """Returns the forms that may be in the text, longest first (one may be part of another), and the word pattern.

        Of many forms it returns only those whose beginning is in the text: most lines have none.
        """
        with self._lock:
            if len(self._times) <= _FEW:
                return self._all, self._words
            found: set[str] = set()
            for start in range(0, len(text), _PIECE):
                piece = text[start : start + _PIECE + _SHORTEST - 1]
                found |= self._by_beginning.keys() & {piece[at : at + _SHORTEST] for at in range(len(piece))}
            return _longest_first(form for beginning in found for form in self._by_beginning[beginning]), self._words


def _longest_first(forms: Iterable[_Form]) -> Sequence[_Form]:
    return sorted(forms, key=lambda form: (-len(form.text), form.text))


_hidden: Final = _Hidden()  # one: there is one log per process


def hide(*values: str) -> None:
    """Replaces these values with ``[secret]`` in every later log line and error of this process.

    Driver options with a name such as ``password`` or ``apiToken`` are hidden automatically. A driver that reads a
    secret from elsewhere calls this as soon as it has it: libraries put what they sent into their exceptions. Base64
    is searched too, whether the secret is all of it or a part, such as ``user:password`` in a header.

    A value of four or five characters is hidden where it stands alone, but not within a longer word, because it is part
    of many harmless words. Values of fewer than four characters are not hidden: such a secret protects nothing, and the
    gaps in the log would reveal it.
    """
    _count(values, 1)


def unhide(*values: str) -> None:
    """Stops hiding values that are no longer secret, such as an expired token: each costs time in every log line.

    A value that was hidden twice must be unhidden twice. A value that was never hidden is ignored.
    """
    _count(values, -1)


def _count(values: tuple[str, ...], step: int) -> None:
    _hidden.count([form for value in values if len(value) >= _SHORTEST for form in _forms(value)], step)


def _alone(form: str) -> str:
    """Returns a pattern that matches the form where it is not part of a longer word."""
    begin = r"(?<!\w)" if re.match(r"\w", form) else ""
    end = r"(?!\w)" if re.search(r"\w\Z", form) else ""
    return f"{begin}{re.escape(form)}{end}"


def _forms(value: str) -> set[_Form]:
    """Returns the value as it is, and as it appears in JSON, in a traceback, in a URL and in base64."""
    plain = {value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe="")}
    return {_Form(text, is_word=len(value) < _LONG) for text in plain} | set(_in_base64(value))


def _in_base64(value: str) -> Iterator[_Form]:
    """Yields the base64 forms of a value that is a part of the encoded text.

    Base64 encodes three bytes as four characters, so the form depends on the number of bytes before the value: a
    multiple of three, one more, or two more. The characters at both ends may hold bits of the neighbouring bytes, so
    only those between are known.
    """
    for data in _bytes(value):
        for preceding in range(3):
            first, last = -(-preceding * 8 // 6), (preceding + len(data)) * 8 // 6
            known = b64encode(bytes(preceding) + data + bytes(2)).decode()[first:last]
            before, after = int(preceding > 0), int((preceding + len(data)) * 8 % 6 > 0)
            url_safe = known.replace("+", "-").replace("/", "_")
            for text in {known, url_safe, quote(known, safe=""), known.replace("/", "\\/")}:  # the last: some JSON
                yield _Form(text, before=before, after=after)


def _bytes(value: str) -> set[bytes]:
    """Encodes a value in every way that libraries encode a header."""
    found = {value.encode("utf-8", "surrogatepass")}
    with contextlib.suppress(UnicodeEncodeError):
        found.add(value.encode("latin-1"))
    return found


def redacted(text: str) -> str:
    """Returns the text with all hidden values replaced."""
    forms, words = _hidden.likely(text)
    for form in forms:
        if form.text in text:
            text = _without(text, form)
    return text if words is None else words.sub(MASK, text)


def _without(text: str, form: _Form) -> str:
    if not form.before and not form.after:
        return text.replace(form.text, MASK)
    parts, done = [], 0
    while (at := text.find(form.text, done)) >= 0:
        end = at + len(form.text)
        begin = at - 1 if form.before and at > done and text[at - 1] in _BASE64 else at
        parts += [text[done:begin], MASK]
        done = end + 1 if form.after and text[end : end + 1] in _BASE64 else end
    return "".join([*parts, text[done:]])


# -- Keys that name secrets --------------------------------------------------------------------------------------------


# Wide: a value below such a key is not repeated in a message. Narrow: the value is hidden wherever it occurs, so keys
# that only might name a secret must not match.
_PERHAPS = re.compile(r"(?i)pass|token|secret|credential|private|key|pin$")
_SECRET = re.compile(r"(?i)passw|passphrase|token|secret|credential|(api|access|private|auth)[-_]?key")
_HARMLESS = re.compile(r"(?i)(file|path|dir|name|id|url|ref)$")  # says where a secret is, or which one
_PLACES = re.compile(r"Files$|^secretEnv$")  # maps names, also of secrets, to their places

_ABOUT_TOKENS = {"ttl", "groups"}  # of `join.token`, which configures how tokens are made, and holds none


def may_name_a_secret(key: str) -> bool:
    """Returns whether the value below such a key may be secret and must not be repeated."""
    return _PERHAPS.search(key) is not None


def secret_values(settings: object) -> Iterator[str]:
    """Yields every text below a key that names a secret."""
    for _, value in secrets_in(settings):
        yield from _texts(value)


def secrets_in(settings: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Yields the value of every key that names a secret, with its place."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if isinstance(value, Mapping) and _PLACES.search(str(key)):
                continue
            if key == "token" and isinstance(value, Mapping) and value.keys() <= _ABOUT_TOKENS:
                continue
            is_secret = _SECRET.search(str(key)) and not _HARMLESS.search(str(key))
            yield from [((*path, key), value)] if is_secret else secrets_in(value, (*path, key))
    elif isinstance(settings, list):
        for index, value in enumerate(settings):
            yield from secrets_in(value, (*path, index))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)
