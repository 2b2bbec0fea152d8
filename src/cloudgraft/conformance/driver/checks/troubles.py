"""Checks errors: impossible requests, a failing cloud, and secrets that no error may show."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import replace

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.settings import Trouble
from cloudgraft.conformance.driver.stage import DriverStage, driver_checks, expect
from cloudgraft.conformance.driver.under_test import Calls
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import (
    AuthenticationError,
    CloudgraftError,
    InvalidArgumentError,
    OutOfStockError,
    PermissionDeniedError,
    QuotaExceededError,
    RateLimitedError,
)

CHECKS = driver_checks()

_FULL = (QuotaExceededError, OutOfStockError)  # the autoscaler does the same for both
_RIGHT: dict[Trouble, tuple[type[CloudgraftError], ...]] = {
    Trouble.QUOTA: _FULL,
    Trouble.STOCK_OUT: _FULL,
    Trouble.RATE_LIMIT: (RateLimitedError,),
    Trouble.AUTHENTICATION: (AuthenticationError, PermissionDeniedError),
}


@CHECKS.check("D29", "D31", after=LISTED)
async def what_can_never_work_is_refused(stage: DriverStage) -> None:
    """A machine that cannot be had is refused with InvalidArgumentError, and nothing is made."""
    wrong = stage.settings.wrong()
    if wrong is None:
        raise NotJudged("no wrong_machine was given: a `machine:` section that the cloud must refuse")
    spec = replace(stage.spec(), settings=wrong)
    error = await _failure(stage, spec, stage.calls)
    is_right = isinstance(error, InvalidArgumentError)
    expect(is_right, f"settings that can never work ({dict(wrong)}) gave {_shown(error)}, not InvalidArgumentError")
    await _expect_nothing(stage, spec, error, stage.calls)


@CHECKS.check("D30", "D31", after=("what_can_never_work_is_refused",))
async def trouble_is_called_by_its_name(stage: DriverStage) -> None:
    """A quota, a stock-out, a rate limit and credentials that are refused each give their own error, and no machine."""
    judged = 0
    for trouble, right in _RIGHT.items():
        calls = await _troubled(stage, trouble)
        if calls is None:
            continue
        judged += 1
        spec = stage.spec()
        error = await _failure(stage, spec, calls)
        names = " or ".join(kind.__name__ for kind in right)
        expect(isinstance(error, right), f"a cloud in trouble ({trouble.value}) gave {_shown(error)}, not {names}")
        await _expect_nothing(stage, spec, error, calls)
    if not judged:
        raise NotJudged("no `troubled` was given: drivers whose cloud is out of stock, out of quota, ...")


@CHECKS.check("D28", after=LISTED)
async def a_cloud_that_is_away_has_no_list(stage: DriverStage) -> None:
    """A list raises when the cloud cannot be asked, or does not accept the credentials."""
    judged = 0
    for trouble in (Trouble.AWAY, Trouble.AUTHENTICATION):
        calls = await _troubled(stage, trouble)
        if calls is None:
            continue
        judged += 1
        try:
            listed = await calls.list()
        except CloudgraftError:
            continue
        raise Violation(f"a cloud in trouble ({trouble.value}) cannot be asked, and list() answered with {listed!r}")
    if not judged:
        raise NotJudged("no `troubled` was given for Trouble.AWAY: a driver whose cloud cannot be reached")


@CHECKS.check("D32", after=("create_answers_with_the_machine",))
async def no_secret_is_shown(stage: DriverStage) -> None:
    """Neither the options' secrets nor the user data of a machine are in an error, a machine, or a repr."""
    canary = secrets.token_hex(16)
    user_data = f"#cloud-config\n# {canary}\n"
    spec = stage.spec(user_data=user_data)
    shown = [repr(await stage.create(spec)), repr(stage.raw), repr(stage.calls.driver), *_options(stage)]
    shown += [repr(machine) for machine in await stage.calls.list()]
    wrong = stage.settings.wrong()
    if wrong is not None:
        shown.append(repr(await _failure(stage, replace(stage.spec(user_data=user_data), settings=wrong), stage.calls)))
    for trouble in Trouble:
        calls = await _troubled(stage, trouble)
        if calls is not None:
            shown.append(repr(await _failure(stage, stage.spec(user_data=user_data), calls)))
    for what, value in (("the user data", canary), *(("a secret", value) for value in stage.settings.secrets)):
        place = next((text for text in shown if value in text), None)
        expect(place is None, f"{what} is shown: {(place or '').replace(value, '[it is here]')[:300]}")


def _options(stage: DriverStage) -> list[str]:
    """The options as a log would show them, if the driver stores them."""
    kind = stage.raw.Options if stage.raw is not None else None
    held = vars(stage.raw).values() if hasattr(stage.raw, "__dict__") else ()
    return [repr(value) for value in held if kind is not None and isinstance(value, kind)]


async def _troubled(stage: DriverStage, trouble: Trouble) -> Calls | None:
    """A driver whose cloud is in this trouble; one that is met at the start already is met again by the call."""
    make = stage.settings.troubled
    driver = make(trouble) if make is not None else None
    if driver is None:
        return None
    calls = stage.unstarted(driver)
    with contextlib.suppress(CloudgraftError):
        await calls.start()
    return calls


async def _failure(stage: DriverStage, spec: MachineSpec, calls: Calls) -> Machine | CloudgraftError | Violation:
    try:
        return await stage.create_once(spec, calls)
    except (CloudgraftError, Violation) as error:
        return error


async def _expect_nothing(stage: DriverStage, spec: MachineSpec, error: object, calls: Calls) -> None:
    if isinstance(error, CloudgraftError) and not error.leaves_open:
        try:
            listed = await stage.settled_list(time.monotonic(), calls)
        except CloudgraftError:  # the trouble keeps it from being asked
            listed = await stage.calls.list()
        made = [m for m in listed if m.name == spec.name]
        expect(not made, f"create() raised {error!r}, which says that nothing was done, and {spec.name} is there")


def _shown(end: object) -> str:
    return str(end) if isinstance(end, Violation) else repr(end)
