"""How a check of a driver is written: as those of servers are, on a stage of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgraft.conformance.rules.drivers import DRIVER_RULES
from cloudgraft.conformance.rules.rule import Level

if TYPE_CHECKING:
    from cloudgraft.conformance.driver.stage import DriverStage

__all__ = ["DriverCheck", "driver_check"]

_BY_WEIGHT = (Level.MUST, Level.SHOULD, Level.NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCheck:
    """One thing that is looked at, and the rules that it is about."""

    name: str
    title: str
    rules: tuple[str, ...]
    level: Level
    run: Callable[[DriverStage], Awaitable[None]]
    after: tuple[str, ...] = ()
    """Checks that must have passed, else this one would only repeat their failure."""


def driver_check(
    *rules: str, after: Sequence[str] = ()
) -> Callable[[Callable[[DriverStage], Awaitable[None]]], DriverCheck]:
    """Makes a :class:`DriverCheck` of a function; its level is the highest of its rules."""
    level = min((DRIVER_RULES[rule].level for rule in rules), key=_BY_WEIGHT.index)

    def make(run: Callable[[DriverStage], Awaitable[None]]) -> DriverCheck:
        title = " ".join((run.__doc__ or "").strip().partition("\n\n")[0].split())
        name = getattr(run, "__name__", "")
        return DriverCheck(name=name, title=title, rules=rules, level=level, run=run, after=tuple(after))

    return make
