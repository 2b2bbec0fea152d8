"""Defines a check of drivers, with what it needs to run beside others, and the lists that checks are registered in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from cloudgraft.conformance.check import Check, Checks
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.settings import DriverSettings
from cloudgraft.conformance.driver.stage import DriverStage


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCheck(Check[DriverStage]):
    """A check of drivers, with what it needs to run beside others."""

    machines: Callable[[DriverSettings], int]  # the most that it has at the same time
    is_first: bool  # runs before all others and alone: others rely on it when they run side by side
    is_last: bool  # runs after all others
    # What others do would change its result; or it uses several drivers, which need not guard against each other.
    is_alone: bool
    harms: bool  # it needs a driver of its own, which is closed afterwards


class DriverChecks(list[DriverCheck]):
    """Checks of drivers in the order in which they are defined."""

    def check(
        self,
        *rules: str,
        after: Sequence[str] = (),
        machines: int | Callable[[DriverSettings], int] = 1,
        first: bool = False,
        last: bool = False,
        alone: bool = False,
        harms: bool = False,
    ) -> Callable[[Callable[[DriverStage], Awaitable[None]]], DriverCheck]:
        """Adds a function as a check; see :class:`DriverCheck`."""
        common = Checks[DriverStage](DRIVER_RULES).check(*rules, after=after)

        def add(run: Callable[[DriverStage], Awaitable[None]]) -> DriverCheck:
            made = common(run)
            found = DriverCheck(
                name=made.name,
                title=made.title,
                rules=made.rules,
                level=made.level,
                run=made.run,
                after=made.after,
                machines=machines if callable(machines) else lambda _: machines,
                is_first=first,
                is_last=last,
                is_alone=alone or first or last or harms,
                harms=harms,
            )
            self.append(found)
            return found

        return add


def driver_checks() -> DriverChecks:
    """A list for checks of drivers."""
    return DriverChecks()
