"""Defines a check, and the lists that checks are registered in.

    CHECKS: Final = server_checks()

    @CHECKS.check("R25", "R27", after=("groups_are_listed",))
    async def target_grows_at_once(stage: Stage) -> None:
        \"\"\"An increase shows in the very next NodeGroupTargetSize.\"\"\"
        before = await stage.target()
        ...
        raise Violation(f"the target was {before} and is still {after}")

A check passes when it returns. It raises :class:`Violation` when the server broke a rule, :class:`NotJudged` when the
server has no such feature or the kit's config no such hook, :class:`Hindered` when something that another check is
about stands in the way, and :class:`Inconclusive` when the cloud behind it does not allow a verdict.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from cloudgraft.conformance.rules import RULES, Level, Rule

if TYPE_CHECKING:
    from cloudgraft.conformance.stage import Stage

S = TypeVar("S")  # what a check works with: a Stage, or a DriverStage


class Violation(Exception):  # noqa: N818 - it is a finding, not a fault of the kit
    """The server broke the rule: what was expected, and what came instead."""

    def __init__(self, message: str, *, rules: Sequence[str] = ()) -> None:
        """``rules`` are the broken ones, where they are others than those that the check is about."""
        super().__init__(message)
        self.rules = tuple(rules)


class NotJudged(Exception):  # noqa: N818 - likewise
    """The server declares the feature absent, or a hook is missing; says which."""


class Hindered(Exception):  # noqa: N818 - likewise
    """The check cannot begin because of a failure that another check is about."""


class Inconclusive(Exception):  # noqa: N818 - likewise
    """The cloud did not allow a verdict; says what is needed for one."""


class Need(enum.Enum):
    """Commands of the server's author that a check needs. Names are fields of Hooks, values are keys of kit.yaml."""

    STOCK_OUT = "stockOut"
    SLOW_CLOUD = "slowCloud"
    RESTART = "restart"
    LOST_MACHINE = "lostMachine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[S]):
    """One check, and the rules that it is about."""

    name: str
    title: str
    rules: tuple[str, ...]
    level: Level
    run: Callable[[S], Awaitable[None]]
    after: tuple[str, ...] = ()
    """Checks that must have passed, else this one would only repeat their failure."""
    needs: tuple[Need, ...] = ()
    since: str = ""
    """The first release that does what is checked here; empty for all."""


class Checks(list[Check[S]]):
    """Checks in the order in which they are defined and run."""

    def __init__(self, known: Mapping[str, Rule]) -> None:
        super().__init__()
        self._known = known

    def check(
        self,
        *rules: str,
        level: Level | None = None,
        after: Sequence[str] = (),
        needs: Sequence[Need] = (),
        since: str = "",
    ) -> Callable[[Callable[[S], Awaitable[None]]], Check[S]]:
        """Adds a function as a check; its level is the highest of its rules unless said otherwise."""
        found = level or min((self._known[rule].level for rule in rules), key=list(Level).index)

        def add(run: Callable[[S], Awaitable[None]]) -> Check[S]:
            made = Check(
                name=getattr(run, "__name__", ""),
                title=_first_paragraph(run.__doc__ or ""),
                rules=rules,
                level=found,
                run=run,
                after=tuple(after),
                needs=tuple(needs),
                since=since,
            )
            self.append(made)
            return made

        return add


def server_checks() -> Checks[Stage]:
    """A list for checks of servers."""
    return Checks(RULES)


def _first_paragraph(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())
