"""Judges drivers that are right, on a machine that may be busy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from cloudgraft.conformance.driver import DriverSettings, judge_driver
from cloudgraft.conformance.report import Report, Status
from cloudgraft.sdk.blocking import AnyDriver


async def judged(
    make_driver: Callable[[], AnyDriver], settings: DriverSettings | None = None, *, only: Collection[str] = ()
) -> Report:
    """The report of a driver that passes; else an AssertionError that names each check and its message.

    What could not be judged is tried once more without the other checks beside it: on a busy machine a call may take
    longer than a check can wait for. A check that failed is not repeated.
    """
    report = await judge_driver(make_driver, settings, only=only)
    unjudged = [result.check for result in report.results if result.status is Status.INCONCLUSIVE]
    if unjudged and not report.is_broken:
        again = await judge_driver(make_driver, settings, only=unjudged)
        found = {result.check: result for result in again.results if result.check in unjudged}
        results = tuple(found.get(result.check, result) for result in report.results)
        report = replace(report, results=results, left_behind=again.left_behind)
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    told = [f"{result.status} {result.check}: {result.message}" for result in wrong]
    assert report.is_passed, "\n".join([*told, *(f"left behind: {one}" for one in report.left_behind)])
    return report
