"""Tests a driver against what the engine relies on: the kit's second suite, for authors of drivers.

    report = await judge_driver(lambda: MyDriver(options), DriverSettings(machine={"shape": "small"}))

or with pytest, by subclassing :class:`cloudgraft.conformance.driver.suite.DriverConformance`, which is here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgraft.conformance.driver.checks import DRIVER_CHECKS
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.run import DriverSession, judge_driver
from cloudgraft.conformance.driver.settings import DriverSettings, Trouble

if TYPE_CHECKING:
    from cloudgraft.conformance.driver.suite import DriverConformance

__all__ = [
    "DRIVER_CHECKS",
    "DRIVER_RULES",
    "DriverConformance",
    "DriverSession",
    "DriverSettings",
    "Trouble",
    "judge_driver",
]


def __getattr__(name: str) -> Any:
    """The pytest class, when it is asked for: pytest need not be installed for the rest."""
    if name == "DriverConformance":
        from cloudgraft.conformance.driver.suite import DriverConformance  # noqa: PLC0415

        return DriverConformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
