"""Runs all checks of a driver in order, each on a stage, and cleans up in any case."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgraft.conformance.check import Check, NotJudged, Violation
from cloudgraft.conformance.driver.checks import DRIVER_CHECKS, QUICK_CHECKS
from cloudgraft.conformance.driver.settings import AnyDriver, DriverSettings
from cloudgraft.conformance.driver.stage import DriverStage
from cloudgraft.conformance.driver.under_test import DriverUnderTest, Marks
from cloudgraft.conformance.report import Exchange, Report, Result, Status
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
    ) -> None:
        """Validates the arguments; makes no driver yet."""
        self.checks = chosen(only, quick=quick)
        self._under_test = DriverUnderTest(make_driver, settings or DriverSettings(), Marks())
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
        """The most machines that it creates in all."""
        return 3 * len(self.checks) + 4 * self.most_machines

    def expected(self, list_delay: timedelta) -> timedelta:
        """About how long the run takes where calls are quick and the list is so late."""
        return timedelta(seconds=20) + 2 * list_delay * len(self.checks)

    @property
    def report(self) -> Report:
        """The results so far."""
        return Report(
            server=self._under_test.name,
            release="",
            started=self._started,
            results=tuple(self._results.values()),
            left_behind=tuple(self._left),
        )

    async def run(self, progress: Progress | None = None) -> Report:
        """Runs all checks and cleans up; ``progress`` is called after each check."""
        try:
            for check in self.checks:
                self._results[check.name] = await _judge(check, self._under_test, self._results)
                if progress is not None:
                    progress(self._results[check.name])
        except BaseException as error:
            self._left = await self._under_test.sweep()
            for name in self._left:
                log.warning("left behind: %s", name)
                error.add_note(f"left behind: {name}")
            raise
        self._left = await self._under_test.sweep()
        return self.report


def chosen(only: Collection[str] = (), *, quick: bool = False) -> Sequence[Check[DriverStage]]:
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


async def _judge(check: Check[DriverStage], under_test: DriverUnderTest, results: Mapping[str, Result]) -> Result:
    began = time.monotonic()
    exchanges: list[Exchange] = []
    blocked = [name for name in check.after if name in results and results[name].status in _BLOCKS]
    if blocked:
        status, message = Status.BLOCKED, f"follows from {', '.join(blocked)}"
    else:
        status, message = await _run(check, under_test, exchanges)
        await under_test.tidy()
    return Result(
        check=check.name,
        title=check.title,
        rules=check.rules,
        level=check.level,
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


async def _run(check: Check[DriverStage], under_test: DriverUnderTest, exchanges: list[Exchange]) -> tuple[Status, str]:
    """Runs a check; a driver that it may have harmed is not used again."""
    is_harmed = True
    try:
        async with AsyncExitStack() as stack:
            stage = DriverStage(under_test, await under_test.driver(exchanges), exchanges, stack)
            await check.run(stage)
            is_harmed = stage.is_harmed
    except NotJudged as reason:
        is_harmed = False
        return Status.SKIPPED, str(reason)
    except Violation as violation:
        return Status.FAILED, str(violation)
    except CloudgraftError as error:
        is_its_own = not isinstance(error, _NO_FAULT_OF_THE_DRIVER)
        return (
            Status.FAILED if is_its_own else Status.ERROR,
            f"{exchanges[-1].rpc if exchanges else 'it'}() raised {error!r}",
        )
    except Exception as error:
        log.exception("the kit failed in %s", check.name)
        return Status.ERROR, f"{type(error).__name__}: {error}"
    finally:
        if is_harmed:
            await under_test.tidy()
            await under_test.retire()
    return Status.PASSED, ""
