"""Lists the checks of drivers in the order of a run: what others build on comes first."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.driver.checks import answers, deletion, interrupted, life, once, troubles
from cloudgraft.conformance.driver.stage import DriverStage

__all__ = ["DRIVER_CHECKS"]

DRIVER_CHECKS: Sequence[Check[DriverStage]] = (
    *answers.CHECKS,
    *deletion.OWNERSHIP_CHECKS,
    *deletion.CHECKS,
    *deletion.OTHERS_CHECKS,
    *once.CHECKS,
    *once.MEANWHILE_CHECKS,
    *interrupted.CHECKS,
    *troubles.CHECKS,
    *life.OFFERS_CHECKS,
    *life.CHECKS,
)
