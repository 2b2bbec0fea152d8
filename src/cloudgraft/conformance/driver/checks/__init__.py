"""Every check of a driver, in the order in which they are made: what others build on comes first."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.conformance.driver.check import DriverCheck
from cloudgraft.conformance.driver.checks import (
    answers,
    deletion,
    interrupted,
    life,
    meanwhile,
    offers,
    once,
    ownership,
    troubles,
)

__all__ = ["DRIVER_CHECKS"]

DRIVER_CHECKS: Sequence[DriverCheck] = (
    *answers.CHECKS,
    *ownership.CHECKS,
    *deletion.CHECKS,
    *ownership.OTHERS,
    *once.CHECKS,
    *meanwhile.CHECKS,
    *interrupted.CHECKS,
    *troubles.CHECKS,
    *offers.CHECKS,
    *life.CHECKS,
)
