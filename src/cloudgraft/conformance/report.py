"""Defines the report of a run: one result per check, with every call that led to it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from cloudgraft.conformance.rules import Level


class Status(enum.StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The server declares the feature absent, or the kit's config does not give the hook that it needs."""
    BLOCKED = "blocked"
    """Follows from another failure."""
    INCONCLUSIVE = "inconclusive"
    """The cloud did not allow a verdict: no room, or too many calls whose outcome is unknown. Says what is needed."""
    ERROR = "error"
    """Could not be judged: the kit, or the connection to the server, failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call: what was sent, what came back, as text."""

    rpc: str
    sent: str
    answered: str
    seconds: float
    is_failed: bool
    """The answer was an error of any kind; often that is what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one check."""

    check: str
    title: str
    rules: tuple[str, ...]
    level: Level
    status: Status
    message: str = ""
    exchanges: tuple[Exchange, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All results of one run, in the order of the checks."""

    server: str
    release: str
    started: datetime
    results: tuple[Result, ...]
    left_behind: tuple[str, ...] = ()
    """Machines that the kit made and could not delete."""

    @property
    def failures(self) -> tuple[Result, ...]:
        """The failed results: musts first, then in the order of the checks."""
        failed = [result for result in self.results if result.status is Status.FAILED]
        return tuple(sorted(failed, key=lambda result: list(Level).index(result.level)))

    @property
    def is_passed(self) -> bool:
        """Nothing of level must or should failed, everything could be judged, and nothing is left behind."""
        return not self.is_broken and not self.count(Status.INCONCLUSIVE)

    @property
    def is_broken(self) -> bool:
        """A rule is broken, the kit failed, or machines are left behind. Inconclusive checks break nothing."""
        if self.left_behind or self.count(Status.ERROR):
            return True
        return any(result.level is not Level.NOTE for result in self.failures)

    @property
    def exit_code(self) -> int:
        """For a command: 0 passed, 1 broken, 3 not broken but inconclusive."""
        if self.is_broken:
            return 1
        return 0 if self.is_passed else 3

    def count(self, status: Status) -> int:
        """The number of checks with this status."""
        return sum(result.status is status for result in self.results)
