"""A sample of many cases of one kind; the rest is run by a command that takes longer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def sampled(
    cases: Iterable[T],
    name: Callable[[T], str],
    *,
    every: int = 8,
    rest: pytest.MarkDecorator = pytest.mark.thorough,
) -> list[Any]:
    """The cases as parameters of a test; the first of ``every`` so many is in the sample, ``rest`` marks the others."""
    return [
        pytest.param(case, id=name(case), marks=() if number % every == 0 else (rest,))
        for number, case in enumerate(cases)
    ]
