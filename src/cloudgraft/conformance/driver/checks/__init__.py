"""Lists the checks of drivers in the order of a run: what others build on comes first."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.conformance.check import Check
from cloudgraft.conformance.driver.checks import answers, deletion, interrupted, life, once, troubles
from cloudgraft.conformance.driver.stage import DriverStage

__all__ = ["DRIVER_CHECKS", "QUICK_CHECKS"]

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

QUICK_CHECKS: Sequence[str] = (
    "marks_come_back",
    "deleting_again_is_no_error",
    "a_second_create_is_answered_as_declared",
    "many_creates_at_once",
    "a_cancelled_call_ends",
    "the_event_loop_is_free",
    "what_can_never_work_is_refused",
    "shapes_are_sane",
    "prices_are_sane",
    "it_starts_and_closes_twice",
)
"""Find the mistakes that cost most, in less than a minute where a list is two seconds late."""
