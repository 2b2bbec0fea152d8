"""A sample of many cases of one kind for `make test`; the rest is run by `make test-thorough`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
_EVERY = 8


def sampled(cases: Iterable[T], name: Callable[[T], str]) -> list[Any]:
    """The cases as parameters of a test, of which every eighth is in the sample."""
    return [
        pytest.param(case, id=name(case), marks=() if number % _EVERY == 0 else (pytest.mark.thorough,))
        for number, case in enumerate(cases)
    ]
