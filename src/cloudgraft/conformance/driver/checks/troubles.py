"""Checks errors: impossible requests, a failing cloud, and secrets that no error may show."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloudgraft.conformance.check import Inconclusive, NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.denials import denies
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.settings import Trouble
from cloudgraft.conformance.driver.stage import DriverStage, expect, ids
from cloudgraft.conformance.driver.under_test import PASSING, Calls
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
DENIALS_CHECKS = driver_checks()

_ATTEMPTS = 3

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
    spec, error = await _refusal(stage, wrong)
    is_right = isinstance(error, InvalidArgumentError)
    expect(is_right, f"settings that can never work ({dict(wrong)}) gave {_shown(error)}, not InvalidArgumentError")
    await _expect_nothing(stage, spec, error, stage.calls)


async def _refusal(
    stage: DriverStage, wrong: Mapping[str, object]
) -> tuple[MachineSpec, Machine | CloudgraftError | Violation]:
    """How a create with these settings ends, and what was asked for; errors that pass are met again."""
    left = _ATTEMPTS
    while True:
        spec = replace(stage.spec(), settings=wrong)
        error = await _failure(stage, spec, stage.calls)
        if not isinstance(error, PASSING):
            return spec, error
        left -= 1
        if not left:
            raise Inconclusive(f"create() with wrong settings raised {error!r}: test when the cloud takes calls")
        await stage.pause()


@CHECKS.check("D30", "D31", after=("what_can_never_work_is_refused",), alone=True)
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


@CHECKS.check("D28", after=LISTED, machines=0, alone=True)
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


@CHECKS.check("D37", after=LISTED, machines=4, alone=True)
async def a_lost_answer_is_an_unknown_outcome(stage: DriverStage) -> None:
    """When the cloud makes the machine and the answer is a 5xx, or none, create raises DeadlineError, or answers."""
    judged = [trouble for trouble in (Trouble.ERROR_AFTER, Trouble.LOST_ANSWER) if await _survives(stage, trouble)]
    if not judged:
        raise NotJudged("no `troubled` was given for Trouble.ERROR_AFTER, LOST_ANSWER: a cloud whose answers get lost")


async def _survives(stage: DriverStage, trouble: Trouble) -> bool:
    """Whether a create without an answer could be tried; fails the check when the driver says that nothing was done."""
    end: object = None
    for _ in range(_ATTEMPTS):
        calls = await _troubled(stage, trouble)
        if calls is None:
            return False
        spec = stage.spec()
        end = await _failure(stage, spec, calls)
        stage.denials.forget([spec.name])
        await asyncio.sleep(stage.settings.late.total_seconds())
        made = [machine for machine in await _settled(stage, calls) if machine.name == spec.name]
        for machine in made:
            stage.remember(machine)
        expect(len(made) <= 1, f"after one create ({trouble.value}) there are {len(made)} machines: {ids(made)}")
        if made or isinstance(end, Machine):
            is_right = isinstance(end, Machine) or (isinstance(end, CloudgraftError) and not denies(end))
            expect(is_right, f"the machine was made ({trouble.value}), and create() ended with {_shown(end)}")
            return True
        # Nothing was made: the answer that got lost was that of another request, such as a login.
    raise Inconclusive(f"`troubled` ({trouble.value}) must make the machine, and no list shows one: {_shown(end)}")


@CHECKS.check("D32", after=("create_answers_with_the_machine",), machines=3, alone=True)
async def no_secret_is_shown(stage: DriverStage) -> None:
    """Neither the options' secrets nor the user data of a machine are in an error, a machine, or a repr."""
    canary = secrets.token_hex(16)
    user_data = f"#cloud-config\n# {canary}\n"
    spec = stage.spec(user_data=user_data)
    shown = [repr(await stage.create(spec)), repr(stage.raw), repr(stage.calls.driver), *_options(stage)]
    shown += [repr(machine) for machine in await stage.list(time.monotonic())]
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


@DENIALS_CHECKS.check("D31", after=LISTED, machines=0, last=True)
async def no_error_denies_a_machine(stage: DriverStage) -> None:
    """No create of the whole run raised an error that says that nothing was done, although the machine exists."""
    if stage.denials and stage.settings.is_lasting:
        await stage.settled_list(stage.denials.last + stage.settings.late.total_seconds())
    proven = stage.denials.proven
    expect(not proven, f"create() said that nothing was done, and these machines exist: {', '.join(proven)}")


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
    if denies(error if isinstance(error, BaseException) else None):
        listed = await _settled(stage, calls)
        made = [m for m in listed if m.name == spec.name]
        stage.denials.forget([spec.name])
        for machine in made:
            stage.remember(machine)
        expect(not made, f"create() raised {error!r}, which says that nothing was done, and {spec.name} is there")


async def _settled(stage: DriverStage, calls: Calls) -> Sequence[Machine]:
    """A settled list of the driver in trouble, or of the healthy one when the trouble keeps it from being asked."""
    await asyncio.sleep(stage.delay)
    try:
        return await calls.list()
    except CloudgraftError:
        return await stage.list(time.monotonic())


def _shown(end: object) -> str:
    return str(end) if isinstance(end, Violation) else repr(end)
