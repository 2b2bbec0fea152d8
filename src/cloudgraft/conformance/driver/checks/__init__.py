"""Lists the checks of drivers in the order of a run: what others build on comes first."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgraft.conformance.driver.checks import answers, deletion, interrupted, life, once, troubles
from cloudgraft.conformance.driver.driver_check import DriverCheck

__all__ = ["DRIVER_CHECKS", "FIRST_CHECKS", "QUICK_CHECKS"]

DRIVER_CHECKS: Sequence[DriverCheck] = (
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
    *troubles.DENIALS_CHECKS,
)

FIRST_CHECKS: Sequence[str] = tuple(check.name for check in DRIVER_CHECKS if check.is_first)
"""When these pass, the driver can do several things at once, and the other checks may run side by side."""

QUICK_CHECKS: Sequence[str] = (
    *FIRST_CHECKS,
    "deleting_again_is_no_error",
    "a_second_create_is_answered_as_declared",
    "two_creates_of_one_name_at_once",
    "a_cancelled_call_ends",
    "the_event_loop_is_free",
    "what_can_never_work_is_refused",
    "a_lost_answer_is_an_unknown_outcome",
    "shapes_are_sane",
    "prices_are_sane",
    "it_starts_and_closes_twice",
    "no_error_denies_a_machine",
)
"""Find the mistakes that cost most, in less than a minute where a list is two seconds late."""
