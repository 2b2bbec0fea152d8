"""Reports problems of a configuration file, each with its place and what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cloudgraft.sdk.errors import InvalidArgumentError

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem. ``line`` and ``column`` count from 1; 0 means that there is no such place."""

    file: str
    line: int = 0
    column: int = 0
    key: str = ""
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.text}"

    @property
    def text(self) -> str:
        """The problem without its place in a file."""
        key = f"{self.key}: " if self.key else ""
        suggestion = f" ({self.suggestion})" if self.suggestion else ""
        return f"{key}{self.message}{suggestion}"


class ConfigError(InvalidArgumentError):
    """The configuration cannot be used. Holds all problems, not only the first one; ``str()`` is one line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Problems:
    """The problems found so far, each once."""

    def __init__(self, found: Iterable[Problem] = ()) -> None:
        self._found = dict.fromkeys(found)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def add(self, *problems: Problem) -> None:
        """Adds problems, without those that are there already."""
        self._found.update(dict.fromkeys(problems))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Takes the problems of a ConfigError that is raised inside, and continues after the block."""
        try:
            yield
        except ConfigError as error:
            self.add(*error.problems)

    def raise_any(self) -> None:
        """Raises ConfigError if there is a problem."""
        if self._found:
            raise ConfigError(self._found)


def dotted(path: Sequence[str | int]) -> str:
    """A key path for people: ``providers[0].tls.cert``. A key that is not a plain word is put into quotes."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_/-]{1,80}", part)
            text += ("." if text else "") + (part if plain else json.dumps(printable(part), ensure_ascii=False))
    return text


def printable(text: str, limit: int = 80) -> str:
    """Text from outside, shortened and without control characters for the terminal."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: limit + 1])
    return shown if len(shown) <= limit else shown[:limit] + "…"
