"""Parses label selectors in Kubernetes' syntax: ``country=italy,gpu!=none,tier in (a, b),!old,cores>4``. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

Labels = Mapping[str, str]
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")
_TOKENS: Final = re.compile(r"\s*(==|!=|=|!|<|>|,|\(|\)|[^\s=!<>,()]+)")
_LONGEST_VALUE: Final = 63
_LONGEST_PREFIX: Final = 253
_LONGEST: Final = 10_000
_EXAMPLE: Final = 'write it like "country=italy,gpu!=none,tier in (a, b)"'
_EQUALS: Final = ("=", "==")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")

Test = Callable[[Labels], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector. An empty one matches everything."""

    tests: tuple[Test, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Parses a selector. InvalidArgumentError, with the position, for one that Kubernetes would reject."""
        if len(text) > _LONGEST:
            raise InvalidArgumentError(f"a label selector has at most {_LONGEST} characters")
        return cls(tuple(_Parser(text).tests()))

    def matches(self, labels: Labels) -> bool:
        """Whether all requirements match."""
        return all(test(labels) for test in self.tests)


class _Parser:
    """Parses one selector, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKENS.findall(text)
        self._at = 0

    def tests(self) -> list[Test]:
        """All its requirements."""
        if not self._tokens:
            return []
        found = [self._requirement()]
        while self._peek():
            self._take(",")
            found.append(self._requirement())
        return found

    def _requirement(self) -> Test:
        if self._peek() == "!":
            self._take("!")
            key = self._key()
            return lambda labels: key not in labels
        key = self._key()
        operator = self._peek()
        if operator in {"", ","}:
            return lambda labels: key in labels
        self._at += 1
        if operator in {"in", "notin"}:
            return _among(key, self._values(), wanted=operator == "in")
        if operator in _EQUALS or operator == "!=":
            return _among(key, frozenset({self._value()}), wanted=operator != "!=")
        if operator in {"<", ">"}:
            return _compared(key, self._number(), above=operator == ">")
        raise self._wrong(f"{operator!r} is no operator")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, token: str) -> None:
        if self._peek() != token:
            raise self._wrong(f"a {token!r} should be where {self._peek() or 'the end'!r} is")
        self._at += 1

    def _key(self) -> str:
        key = self._peek()
        prefix, _, name = key.rpartition("/")
        if not _KEY.fullmatch(key) or len(name) > _LONGEST_VALUE or len(prefix) > _LONGEST_PREFIX:
            raise self._wrong(f"{key[:80] or 'the end'!r} is no key of a label")
        self._at += 1
        return key

    def _value(self) -> str:
        value = self._peek()
        if value in {"", ",", ")"}:  # "a=" is one, too
            return ""
        if not _VALUE.fullmatch(value) or len(value) > _LONGEST_VALUE:
            raise self._wrong(f"{value[:80]!r} is no value of a label")
        self._at += 1
        return value

    def _values(self) -> frozenset[str]:
        self._take("(")
        if self._peek() == ")":
            raise self._wrong("a set cannot be empty")
        found = {self._value()}
        while self._peek() == ",":
            self._take(",")
            found.add(self._value())
        self._take(")")
        return frozenset(found)

    def _number(self) -> int:
        text = self._value()
        if not _NUMBER.fullmatch(text):
            raise self._wrong("'<' and '>' compare with a whole number")
        return int(text)

    def _wrong(self, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._text[:200]!r} is no label selector: {reason}; {_EXAMPLE}")


def _among(key: str, values: frozenset[str], *, wanted: bool) -> Test:
    """As in Kubernetes, a negative requirement also matches a missing label."""
    if wanted:
        return lambda labels: key in labels and labels[key] in values
    return lambda labels: key not in labels or labels[key] not in values


def _compared(key: str, number: int, *, above: bool) -> Test:
    def test(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not _NUMBER.fullmatch(value):
            return False
        return int(value) > number if above else int(value) < number

    return test
