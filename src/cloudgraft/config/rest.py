"""Keeps the valid rest of a file that has problems, so that drivers and providers can check their parts of it too.

Without it, a wrong key in one section would hide every problem that only a driver can find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from cloudgraft.validation.explain import OF_A_KEY, follow
from cloudgraft.validation.problems import KeyPath, Problem, dotted

T = TypeVar("T")
_ROUNDS: Final = 20  # each removes all values that are wrong, and then what lacks them
_ANY: Final = None  # any index, in the paths below
# Values in place of required ones, so that the rest of the section around them can still be checked. An entry of a list
# always needs one: without it, the entries after it would have other numbers than in the file.
_STAND_INS: Final[dict[tuple[str | None, ...], Any]] = {
    ("cluster",): "cluster",
    ("nodeGroups", _ANY): {"id": "group", "cloud": "-", "maxSize": 1},  # no cloud has that name
    ("nodeGroups", _ANY, "id"): "group",
    ("nodeGroups", _ANY, "cloud"): "-",
    ("nodeGroups", _ANY, "maxSize"): 2**31 - 1,
    ("providers", _ANY): {"type": "memory"},
}


@dataclass(frozen=True, slots=True)
class Rest:
    """The keys of the values that were left out or replaced."""

    dropped: Sequence[str]

    def news(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Leaves out problems that this rest has, but not the file: those at a place that was left out or replaced."""
        for problem in problems:
            if not any(problem.key == key or problem.key.startswith((f"{key}.", f"{key}[")) for key in self.dropped):
                yield problem


def valid_rest(
    value: Any, model: Any, validate: Callable[[Any], T], wrong: Iterable[KeyPath] = ()
) -> tuple[T, Rest] | None:
    """Removes wrong values until the rest is valid; None when nothing is left. ``value`` itself is not changed.

    ``wrong`` are the paths of values that are removed first.
    """
    cutter = _Cutter(deepcopy(value))
    if not cutter.cut_all(wrong):
        return None
    for _ in range(_ROUNDS):
        try:
            found = validate(cutter.value)
        except ValidationError as error:
            if not cutter.cut_all(_paths(error.errors(include_url=False), model)):
                return None
        else:
            return found, Rest([dotted(path) for path in cutter.dropped])
    return None


def _paths(errors: Iterable[ErrorDetails], model: Any) -> list[KeyPath]:
    found: dict[KeyPath, None] = {}
    for error in errors:
        location = error["loc"]
        path, _ = follow(model, location[:-1] if location[-1:] == (OF_A_KEY,) else location)
        found[(*path, *error.get("ctx", {}).get("at", ()))] = None
    return list(found)


class _Cutter:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.dropped: dict[KeyPath, None] = {}

    def cut_all(self, paths: Iterable[KeyPath]) -> bool:
        """Removes or replaces the values at paths of one validation; False when nothing is left."""
        gone: list[KeyPath] = []
        for path in paths:
            # Two keys that a section lacks remove that section once, and not also what holds it.
            if any(path[: len(cut)] == cut for cut in gone):
                continue
            cut = self._cut(path)
            if cut is None:
                return False
            gone.append(cut)
        return True

    def _cut(self, path: KeyPath) -> KeyPath | None:
        """Removes or replaces the value there, else what holds it. Returns the path of that; None: the whole file."""
        if not path:
            return None
        holder = self._at(path[:-1])
        is_new = path not in self.dropped  # a value that is still wrong, or now missing, cannot be cut again
        stand_in = _STAND_INS.get(tuple(_ANY if isinstance(part, int) else part for part in path))
        self.dropped[path] = None
        if is_new and stand_in is not None and isinstance(holder, dict | list):
            holder[path[-1]] = deepcopy(stand_in)  # type: ignore[index]  # a number for a list, as in every path
            return path
        if is_new and isinstance(holder, dict) and path[-1] in holder:
            del holder[path[-1]]
            return path
        return self._cut(path[:-1])

    def _at(self, path: KeyPath) -> Any:
        here = self.value
        for part in path:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):  # removed together with what was around it
                return None
        return here
