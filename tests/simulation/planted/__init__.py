"""Planted faults: each reverts one protection of the code, to show that the simulation would find its loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

__all__ = ["FAULTS", "planted"]

FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """One fault is there for a while; none for an empty name."""
    if not name:
        yield
        return
    with FAULTS[name]():
        yield
