"""Runs the checks of drivers as a pytest class, one test each. Needs pytest and nothing else.

class TestMine(DriverConformance):
    machine = {"shape": "small"}

    def make_driver(self) -> Driver:
        return MyDriver(MyOptions(region="north"))

The checks run once per class, side by side, and each test reports the result of one. With pytest-xdist keep a class on
one worker (``--dist loadscope``): each worker would make a run of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, NoReturn

import pytest

from cloudgraft.conformance.driver.checks import DRIVER_CHECKS
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.run import judge_driver
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings, Trouble
from cloudgraft.conformance.report import Report, Result, Status
from cloudgraft.conformance.rules import Level
from cloudgraft.sdk.driver import Driver

_DEFAULT = DriverSettings()
_NAMES = tuple(check.name for check in DRIVER_CHECKS)
_REPORTS: pytest.StashKey[dict[type, Report]] = pytest.StashKey()
_LAST = 8  # calls that are shown of a failed check


class DriverConformance:
    """Subclass it and define make_driver; each rule for drivers is then a test. See DriverSettings for the rest."""

    machine: ClassVar[Mapping[str, object]] = {}
    wrong_machine: ClassVar[Mapping[str, object] | None] = None
    at_once: ClassVar[int] = _DEFAULT.at_once
    page_size: ClassVar[int] = _DEFAULT.page_size
    interruptions: ClassVar[int] = _DEFAULT.interruptions
    is_lasting: ClassVar[bool] = _DEFAULT.is_lasting
    call_timeout: ClassVar[timedelta] = _DEFAULT.call_timeout
    patience: ClassVar[timedelta] = _DEFAULT.patience
    boot_time: ClassVar[timedelta] = _DEFAULT.boot_time
    late: ClassVar[timedelta] = _DEFAULT.late
    secrets: ClassVar[Sequence[str]] = ()

    def make_driver(self) -> AnyDriver:
        """A driver that was not started; called several times, for the same cloud."""
        raise NotImplementedError("say how your driver is made: def make_driver(self) -> Driver")

    def make_troubled(self, trouble: Trouble) -> AnyDriver | None:
        """A driver whose cloud is in this trouble; None when that cannot be had."""
        return None

    async def crash(self, driver: Driver) -> None:
        """Ends the program that does the driver's work, as kill -9 would; left alone when there is none."""

    def settings(self) -> DriverSettings:
        """The settings from the attributes and methods above."""
        can_crash = type(self).crash is not DriverConformance.crash
        attributes = {name: getattr(self, name) for name in DriverConformance.__annotations__}
        return DriverSettings(**attributes, troubled=self.make_troubled, crash=self.crash if can_crash else None)

    @pytest.mark.parametrize("check", [check.name for check in DRIVER_CHECKS])
    def test_driver(self, check: str, request: pytest.FixtureRequest) -> None:
        """Reports one check of the run that all selected tests of this class share; the first test makes it."""
        report = self._report(request)
        result = next(result for result in report.results if result.check == check)
        if report.left_behind and "test_nothing_is_left_behind" not in _selected(request):
            _fail_left_behind(report)
        if result.status is Status.SKIPPED:
            pytest.skip(result.message)
        if result.status is Status.BLOCKED:
            pytest.skip(f"{result.message}; see there")
        if result.status is Status.INCONCLUSIVE:
            pytest.skip(f"inconclusive: {result.message}")
        if result.status is Status.ERROR or (result.status is Status.FAILED and result.level is not Level.NOTE):
            pytest.fail(explained(result), pytrace=False)

    def test_nothing_is_left_behind(self, request: pytest.FixtureRequest) -> None:
        """Every machine that the kit made could be deleted."""
        report = self._report(request)
        if report.left_behind:
            _fail_left_behind(report)

    def _report(self, request: pytest.FixtureRequest) -> Report:
        """Runs the selected checks of this class, once per session."""
        reports = request.session.stash.setdefault(_REPORTS, {})
        if type(self) not in reports:
            # Without a check, as for test_nothing_is_left_behind alone, the first one.
            only = [name for name in _selected(request) if name in _NAMES] or _NAMES[:1]
            reports[type(self)] = asyncio.run(judge_driver(self.make_driver, self.settings(), only=only))
        return reports[type(self)]


def _selected(request: pytest.FixtureRequest) -> Sequence[str]:
    """The checks and other tests of this class that pytest runs in this session."""
    own = [item for item in request.session.items if getattr(item, "cls", None) is request.cls]
    calls = [getattr(item, "callspec", None) for item in own]
    return [str(call.params["check"]) if call else item.name for item, call in zip(own, calls, strict=True)]


def _fail_left_behind(report: Report) -> NoReturn:
    pytest.fail(f"left behind, delete them by hand: {', '.join(report.left_behind)}", pytrace=False)


def explained(result: Result) -> str:
    """The message of a failed check: the finding, the calls, why it matters, and the fix."""
    lines = [result.title, f"  {result.message}", "", "The last calls:"]
    calls = result.exchanges[-_LAST:]
    lines += [f"  {call.rpc}({call.sent}) -> {call.answered} [{call.seconds:.3f} s]" for call in calls]
    for rule in (DRIVER_RULES[name] for name in result.rules):
        lines += ["", f"{rule.id} ({rule.level}): {rule.title}", f"  why: {rule.why}", f"  fix: {rule.fix}"]
    return "\n".join(lines)
