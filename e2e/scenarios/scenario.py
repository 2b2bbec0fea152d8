"""What a scenario is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.stage import Stage

__all__ = ["Scenario"]


def _nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A story with asserts. ``run`` raises AssertionError when something is not as it must be."""

    number: int
    seconds: int  # that it takes, roughly: the long ones are begun first
    title: str
    run: Callable[[Stage], None]
    missing: Callable[[], str] = _nothing  # why it cannot be run on this machine, and what to install; empty: it can
