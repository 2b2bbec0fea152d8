"""Collects all validation errors of a configuration section and reports them together, not one per start.

A class of options checks its values in ``__post_init__``, records every flaw with its key, and raises them together.
A key is the name of a field, or its name in the file: ``boot_timeout`` and ``bootTimeout`` are both reported as
``bootTimeout``, at the line of its value::

    flaws = Flaws()
    flaws.expect(self.name, "name", "must not be empty")
    flaws.expect_positive(size=self.size, boot_timeout=self.boot_timeout)
    with flaws.at("memory"):
        Quantity(self.memory)
    flaws.raise_any()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.secrecy import redacted

Amount = timedelta | Decimal | float
Place = str | tuple[str | int, ...]  # a key, or the path to a nested one; an empty path: the section itself


@dataclass(frozen=True, slots=True)
class Flaw:
    """One validation error, with its path from the section that reports it."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path).removeprefix(".")
        return f"{place}: {self.message}" if place else self.message


class FlawedError(InvalidArgumentError, ValueError):
    """A section is invalid; holds all its flaws.

    It is also a ValueError, because pydantic collects only those: it then continues and reports what is wrong in other
    sections. It cannot check a section as a whole while one of its values has the wrong type.
    """

    def __init__(self, flaws: Sequence[Flaw] | str, *, retry_after: float | None = None) -> None:
        """Takes a text too, as all errors do: some are raised again with a longer text, or without a secret."""
        found = [Flaw((), flaws)] if isinstance(flaws, str) else flaws
        self.flaws = tuple(Flaw(flaw.path, redacted(flaw.message)) for flaw in found)  # each is also shown alone
        super().__init__("; ".join(map(str, self.flaws)), retry_after=retry_after)

    def below(self, *path: str | int) -> FlawedError:
        """Returns the same error with paths that start at an enclosing section."""
        return FlawedError([Flaw((*path, *flaw.path), flaw.message) for flaw in self.flaws])


class Flaws:
    """The flaws found so far."""

    def __init__(self) -> None:
        self._found: list[Flaw] = []

    def tell(self, place: Place, message: str) -> None:
        """Records a flaw at that place."""
        self._found.append(Flaw(_path(place), message))

    def expect(self, is_fine: object, place: Place, message: str) -> None:
        """Records a flaw at that place unless ``is_fine`` is true."""
        if not is_fine:
            self.tell(place, message)

    def expect_positive(self, **values: Amount | None) -> None:
        """Records each of these keys whose value is zero or less. None means that the key was not given."""
        for key, value in values.items():
            self.expect(value is None or _number(value) > 0, key, "must be more than zero")

    def expect_not_negative(self, **values: Amount | None) -> None:
        """Records each of these keys whose value is below zero. None means that the key was not given."""
        for key, value in values.items():
            self.expect(value is None or _number(value) >= 0, key, "must not be negative")

    @contextmanager
    def at(self, place: Place) -> Iterator[None]:
        """Records at that place an InvalidArgumentError that is raised inside, and continues after the block.

        A message may begin with the key already, because other callers raise it too. The key then appears only once.
        """
        try:
            yield
        except FlawedError as error:
            self._found += error.below(*_path(place)).flaws
        except InvalidArgumentError as error:
            path = _path(place)
            self.tell(path, error.message.removeprefix(f"{path[-1]}: ") if path else error.message)

    def raise_any(self) -> None:
        """Raises FlawedError if there is a flaw."""
        if self._found:
            raise FlawedError(self._found)


def _number(value: Amount) -> Decimal | float:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _path(place: Place) -> tuple[str | int, ...]:
    return (place,) if isinstance(place, str) else place
