"""Runs all checks of a driver, side by side where that is safe, and cleans up in any case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgraft.conformance.check import Inconclusive, NotJudged, Violation
from cloudgraft.conformance.driver.checks import DRIVER_CHECKS, FIRST_CHECKS, QUICK_CHECKS
from cloudgraft.conformance.driver.driver_check import DriverCheck
from cloudgraft.conformance.driver.rules import DRIVER_RULES
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.driver.stage import DriverStage
from cloudgraft.conformance.driver.under_test import DriverUnderTest, Marks
from cloudgraft.conformance.hooks import to_its_end
from cloudgraft.conformance.report import Exchange, Report, Result, Status
from cloudgraft.conformance.rules import Level
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    DeadlineError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)

log = logging.getLogger("cloudgraft.conformance")
Progress = Callable[[Result], None]
Verdict = tuple[Status, str, Sequence[str]]  # with the broken rules, where they are others than the check's

# Measured on a simulated cloud: the calls, and how often checks that run side by side wait for a list.
_CALLS, _SIDE_BY_SIDE = timedelta(seconds=10), 5
_GOOD = (Status.PASSED, Status.SKIPPED, Status.INCONCLUSIVE)
_BLOCKS = (Status.FAILED, Status.BLOCKED, Status.ERROR)
# Errors that are more about the cloud or the account than about the driver.
_NO_FAULT_OF_THE_DRIVER = (
    AuthenticationError,
    DeadlineError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
    UnavailableError,
)


async def judge_driver(
    make_driver: Callable[[], AnyDriver],
    settings: DriverSettings | None = None,
    *,
    only: Collection[str] = (),
    quick: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Judges a driver by real calls to its cloud, and deletes what that made, also when it is cancelled.

    ``make_driver`` is called several times; each call gives a driver that was not started, of the same cloud.
    ``only`` names checks or rules; the checks that they come after run too. ``quick`` chooses the most important ones.
    Machines that could not be deleted are in the report; after a cancellation they are in the log, and in a note of the
    exception.
    """
    return await DriverSession(make_driver, settings, only=only, quick=quick).run(progress)


class DriverSession:
    """One run whose report can be read before its end: after Ctrl-C :attr:`report` has the results until then."""

    def __init__(
        self,
        make_driver: Callable[[], AnyDriver],
        settings: DriverSettings | None = None,
        *,
        only: Collection[str] = (),
        quick: bool = False,
        name: str = "",
    ) -> None:
        """Validates the arguments; makes no driver yet. The report has ``name``, or the class of the author."""
        self.checks = chosen(only, quick=quick)
        self._under_test = DriverUnderTest(make_driver, settings or DriverSettings(), Marks(), name=name)
        self._results: dict[str, Result] = {}
        self._started = datetime.now(UTC)
        self._left: Sequence[str] = ()

    @property
    def marks(self) -> Marks:
        """The names and tags of this run's machines."""
        return self._under_test.marks

    @property
    def most_machines(self) -> int:
        """The most machines that it has at the same time."""
        return self._under_test.settings.most_machines

    @property
    def all_machines(self) -> int:
        """About how many machines it creates in all: more only where creates fail."""
        return sum(check.machines(self._under_test.settings) for check in self.checks)

    def expected(self, list_delay: timedelta) -> timedelta:
        """About how long the run takes where calls are quick and the list is so late."""
        settings = self._under_test.settings
        alone = sum(check.is_alone and check.machines(settings) > 0 for check in self.checks)
        return _CALLS + (alone + _SIDE_BY_SIDE) * list_delay

    @property
    def report(self) -> Report:
        """The results so far."""
        return Report(
            server=self._under_test.name,
            release="",
            started=self._started,
            results=tuple(self._results[check.name] for check in self.checks if check.name in self._results),
            left_behind=tuple(self._left),
        )

    async def run(self, progress: Progress | None = None) -> Report:
        """Runs all checks and cleans up; ``progress`` is called after each check."""
        try:
            await self._run_all(progress or (lambda _: None))
        except BaseException as error:
            self._left = await to_its_end(self._under_test.sweep())
            for name in self._left:
                log.warning("left behind: %s", name)
                error.add_note(f"left behind: {name}")
            raise
        self._left = await to_its_end(self._under_test.sweep())
        return self.report

    async def _run_all(self, progress: Progress) -> None:
        """Runs the first checks one by one. The others run side by side if the driver can do several things at once."""
        for check in (check for check in self.checks if check.is_first):
            progress(await self._run_one(check))
        rest = [check for check in self.checks if not check.is_first]
        if all(name in self._results and self._results[name].status in _GOOD for name in FIRST_CHECKS):
            await self._run_side_by_side([check for check in rest if not check.is_alone], progress)
            rest = [check for check in rest if check.is_alone]
        for check in rest:
            progress(await self._run_one(check))

    async def _run_side_by_side(self, checks: Sequence[DriverCheck], progress: Progress) -> None:
        """Starts each check as soon as those that it comes after have ended, and there is room for its machines."""
        ended = {check.name: asyncio.Event() for check in checks}

        async def run(check: DriverCheck) -> None:
            for name in check.after:
                if name in ended:
                    await ended[name].wait()
            result = await self._run_one(check)
            ended[check.name].set()
            if result.status not in _BLOCKS:
                progress(result)

        async with asyncio.TaskGroup() as group:
            for check in checks:
                group.create_task(run(check))
        for check in (check for check in checks if self._results[check.name].status in _BLOCKS):
            progress(await self._run_again(check))

    async def _run_again(self, check: DriverCheck) -> Result:
        """Runs a check alone that failed beside others: what they did may have been the reason."""
        before = self._results[check.name]
        result = await self._run_one(check)
        if before.status is Status.FAILED and result.status is Status.PASSED:
            why = (
                f"beside other checks: {before.message}. Alone it passed. Does list() miss a machine when others are "
                "deleted while it reads the pages? Run it again"
            )
            result = replace(result, status=Status.INCONCLUSIVE, message=why, exchanges=before.exchanges)
            self._results[check.name] = result
        return result

    async def _run_one(self, check: DriverCheck) -> Result:
        async with self._under_test.room.taken(check.machines(self._under_test.settings)):
            self._results[check.name] = await _judge(check, self._under_test, self._results)
        return self._results[check.name]


def chosen(only: Collection[str] = (), *, quick: bool = False) -> Sequence[DriverCheck]:
    """The checks to make, in order, with those that they come after."""
    if quick and only:
        raise InvalidArgumentError("give a choice of checks, or ask for the quick ones, not both")
    only = QUICK_CHECKS if quick else only
    by_name = {check.name: check for check in DRIVER_CHECKS}
    known = {*by_name, *(rule for check in DRIVER_CHECKS for rule in check.rules)}
    if unknown := sorted(set(only) - known):
        raise InvalidArgumentError(f"there is no check and no rule for drivers with the name {', '.join(unknown)}")
    wanted = [check for check in DRIVER_CHECKS if not only or check.name in only or set(check.rules) & set(only)]
    needed: set[str] = set()
    while wanted:
        check = wanted.pop()
        needed.add(check.name)
        wanted += [by_name[name] for name in check.after if name not in needed]
    return [check for check in DRIVER_CHECKS if check.name in needed]


async def _judge(check: DriverCheck, under_test: DriverUnderTest, results: Mapping[str, Result]) -> Result:
    began = time.monotonic()
    exchanges: list[Exchange] = []
    rules: Sequence[str] = ()
    blocked = [name for name in check.after if name in results and results[name].status in _BLOCKS]
    if blocked:
        status, message = Status.BLOCKED, f"follows from {', '.join(blocked)}"
    else:
        status, message, rules = await _run(check, under_test, exchanges)
    return Result(
        check=check.name,
        title=check.title,
        rules=tuple(rules) or check.rules,
        level=min((DRIVER_RULES[rule].level for rule in rules), key=list(Level).index, default=check.level),
        status=status,
        message=_masked(message, under_test.settings.secrets),
        exchanges=tuple(_masked_call(call, under_test.settings.secrets) for call in exchanges),
        seconds=time.monotonic() - began,
    )


def _masked(text: str, secrets: Sequence[str]) -> str:
    """Hides the driver's secrets in the report."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def _masked_call(call: Exchange, secrets: Sequence[str]) -> Exchange:
    return replace(call, sent=_masked(call.sent, secrets), answered=_masked(call.answered, secrets))


async def _run(check: DriverCheck, under_test: DriverUnderTest, exchanges: list[Exchange]) -> Verdict:
    """Runs a check and deletes what it made; a driver that it may have harmed is not used again."""
    try:
        async with under_test.driver(exchanges, own=check.harms) as one, AsyncExitStack() as stack:
            stage = DriverStage(under_test, one, exchanges, stack, check.machines(under_test.settings))
            is_fine = False
            try:
                await check.run(stage)
                is_fine = True
            except (NotJudged, Inconclusive):
                is_fine = True
                raise
            finally:
                with contextlib.suppress(Exception):  # what stays is swept at the end, and reported
                    await stage.tidy()
                if not is_fine:
                    under_test.harmed(one)
    except NotJudged as reason:
        return Status.SKIPPED, str(reason), ()
    except Inconclusive as reason:
        return Status.INCONCLUSIVE, str(reason), ()
    except Violation as violation:
        return Status.FAILED, str(violation), violation.rules
    except CloudgraftError as error:
        return _status(check, error), f"{exchanges[-1].rpc if exchanges else 'it'}() raised {error!r}", ()
    except Exception as error:
        log.exception("the kit failed in %s", check.name)
        return Status.ERROR, f"{type(error).__name__}: {error}", ()
    return Status.PASSED, "", ()


def _status(check: DriverCheck, error: CloudgraftError) -> Status:
    """What an error means that a check did not expect."""
    if not isinstance(error, _NO_FAULT_OF_THE_DRIVER):
        return Status.FAILED
    # Nothing can be judged without credentials, or without a first list.
    is_hopeless = isinstance(error, AuthenticationError | PermissionDeniedError) or not check.after
    return Status.ERROR if is_hopeless else Status.INCONCLUSIVE
