"""Checks that one name gets one machine, also when calls run at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.stage import DriverStage, driver_checks, expect, ids, is_alive, lost_tags
from cloudgraft.conformance.driver.under_test import Calls
from cloudgraft.sdk.driver import Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, Retry

CHECKS = driver_checks()
MEANWHILE_CHECKS = driver_checks()

# -- one machine per name ----------------------------------------------------------------------------------------------
# One machine for one name: a second create, two at once, many at once, and after a restart of the driver.


@CHECKS.check("D13", after=LISTED)
async def a_second_create_adds_nothing(stage: DriverStage) -> None:
    """Where create is idempotent, the list has one machine after a second create of its name."""
    _needs_idempotency(stage)
    spec = stage.spec()
    await stage.create(spec)
    await _again(stage, spec)
    await expect_one(stage, spec, "create() was called twice, one after the other")


@CHECKS.check("D14", after=("a_second_create_adds_nothing",))
async def a_second_create_is_answered_as_declared(stage: DriverStage) -> None:
    """A second create answers with the first machine (token), or raises AlreadyExistsError (unique name)."""
    _needs_idempotency(stage)
    spec = stage.spec()
    first = await stage.create(spec)
    second = await _again(stage, spec)
    if stage.traits.idempotency is Idempotency.UNIQUE_NAME:
        is_fine = isinstance(second, AlreadyExistsError)
        expect(is_fine, f"the traits say UNIQUE_NAME, and a second create ended with {second!r}")
    elif isinstance(second, Machine):
        expect(
            (second.name, second.machine_id) == (first.name, first.machine_id),
            f"the traits say TOKEN, and a second create answered with {second.machine_id}, not {first.machine_id}",
        )
    else:
        raise Violation(f"the traits say TOKEN, and a second create raised {second!r}")


@CHECKS.check("D15", after=("a_second_create_adds_nothing",))
async def two_creates_of_one_name_at_once(stage: DriverStage) -> None:
    """Where create is idempotent, two creates of one name at the same time make one machine."""
    _needs_idempotency(stage)
    spec = stage.spec()
    answers = await asyncio.gather(*(_again(stage, spec) for _ in range(2)))
    made = [answer for answer in answers if isinstance(answer, Machine)]
    if not made:
        raise Violation(f"of two creates of one name none answered with the machine: {answers!r}")
    expect(len({m.machine_id for m in made}) == 1, f"two creates of one name at once made two machines: {ids(made)}")
    await expect_one(stage, spec, "create() was called twice at once")


@CHECKS.check("D16", after=("a_second_create_adds_nothing", "a_new_machine_is_listed"))
async def a_new_driver_knows_the_old_machines(stage: DriverStage) -> None:
    """A new instance of the driver lists the machines of the old one, and creates none of them again."""
    if not stage.settings.is_lasting:
        raise NotJudged("is_lasting is False: the machines live in the driver, and are gone with it")
    spec = stage.spec()
    made = await stage.create(spec)
    ended = time.monotonic()
    second = await stage.another()
    found = await stage.the_one(spec.name, ended, second)
    expect(found.machine_id == made.machine_id, f"a new driver shows {made.machine_id} as {found.machine_id}")
    if stage.is_idempotent:
        await _again(stage, spec, second)
        await expect_one(stage, spec, "create() was called again by a new driver")
    await stage.delete(found, second)
    left = await stage.wait_until_gone([made.machine_id], stage.delay + stage.settings.patience.total_seconds())
    expect(not left, f"a new driver deleted {made.machine_id}, and it is still there")


@CHECKS.check("D17", after=("machine_ids_are_their_own", "marks_come_back"))
async def many_creates_at_once(stage: DriverStage) -> None:
    """Creates for different names at the same time make one machine each, with its own id, name and marks."""
    specs = [stage.spec() for _ in range(stage.settings.at_once)]
    made = await asyncio.gather(*(stage.create(spec) for spec in specs))
    ended = time.monotonic()
    for spec, machine in zip(specs, made, strict=True):
        expect(machine.name == spec.name, f"create() of {spec.name} answered with {machine.name}")
    expect(len({m.machine_id for m in made}) == len(specs), f"{len(specs)} creates gave the ids {ids(made)}")
    listed = {machine.name: machine for machine in await stage.find([spec.name for spec in specs], ended)}
    for spec, machine in zip(specs, made, strict=True):
        shown = listed.get(spec.name)
        if shown is None:
            _may_be_missing(stage, spec)
            continue
        same = shown.machine_id == machine.machine_id
        expect(same, f"create() said that {spec.name} is {machine.machine_id}, list() says {shown.machine_id}")
        if stage.traits.ownership is Ownership.TAGS:
            wrong = lost_tags(shown, spec.tags)
            expect(not wrong, f"made with others at once, {spec.name} has wrong tags: {wrong}")


async def _again(stage: DriverStage, spec: MachineSpec, calls: Calls | None = None) -> Machine | CloudgraftError:
    try:
        return await stage.create_once(spec, calls)
    except CloudgraftError as error:
        return error


async def expect_one(stage: DriverStage, spec: MachineSpec, story: str) -> None:
    """Fails unless the list comes to show exactly one machine of this name, and no second one later."""
    found = [m for m in await stage.settled_list(time.monotonic()) if m.name == spec.name]
    if not found:
        _may_be_missing(stage, spec)
    expect(len(found) <= 1, f"{story}, and there are {len(found)} machines named {spec.name}: {ids(found)}")


def _may_be_missing(stage: DriverStage, spec: MachineSpec) -> None:
    expect(not stage.traits.complete_list, f"no list shows {spec.name}, although its create succeeded")


def _needs_idempotency(stage: DriverStage) -> None:
    if not stage.is_idempotent:
        raise NotJudged("the driver declares Idempotency.NONE: the engine never creates twice without a list between")


# -- concurrent calls --------------------------------------------------------------------------------------------------
# Lists during changes, a deletion during a create, and lists of more than a page.


@MEANWHILE_CHECKS.check("D18", after=("many_creates_at_once",))
async def lists_work_meanwhile(stage: DriverStage) -> None:
    """A list works while machines are being made and deleted, and shows what was there all the time."""
    steady = stage.spec()
    await stage.create(steady)
    await stage.the_one(steady.name, time.monotonic())
    changes = [asyncio.create_task(_come_and_go(stage)) for _ in range(stage.settings.at_once // 2)]
    try:
        while any(not change.done() for change in changes):
            listed = await _list_now(stage)
            is_there = any(machine.name == steady.name for machine in listed)
            expect(is_there or not stage.traits.complete_list, f"{steady.name} is missing while others come and go")
            await asyncio.sleep(0)
    finally:
        for change in changes:
            change.cancel()
        ends = await asyncio.gather(*changes, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end


async def _come_and_go(stage: DriverStage) -> None:
    for _ in range(2):
        await stage.delete(await stage.create(stage.spec()))


async def _list_now(stage: DriverStage) -> Sequence[Machine]:
    try:
        return await stage.calls.list()
    except CloudgraftError as error:
        raise Violation(f"list() raised {error!r} while machines were made and deleted") from error


@MEANWHILE_CHECKS.check("D26", after=("deleting_again_is_no_error", "lists_work_meanwhile"))
async def a_machine_can_be_deleted_in_mid_create(stage: DriverStage) -> None:
    """A machine that is deleted while it is being made goes, and does not come back."""
    spec = stage.spec()
    create = asyncio.create_task(stage.create_once(spec))
    found: list[Machine] = []
    try:
        while not found and not create.done():
            await asyncio.sleep(0)  # a driver in memory may answer without ever giving others a turn
            found = [machine for machine in await stage.calls.list() if machine.name == spec.name]
        machine = found[0] if found else await create
        await _insist(stage, machine)
    finally:
        await asyncio.wait({create})
    if not create.cancelled() and isinstance(create.exception(), Violation):
        raise Violation(f"its create ended badly: {create.exception()}")
    left = [m for m in await stage.settled_list(time.monotonic()) if m.machine_id == machine.machine_id and is_alive(m)]
    expect(
        not left, f"{machine.machine_id} was deleted while it was being made, and is there as {[m.state for m in left]}"
    )


async def _insist(stage: DriverStage, machine: Machine) -> None:
    """Deletes it; ConflictError is accepted for a while."""
    give_up_at = time.monotonic() + stage.settings.patience.total_seconds()
    while True:
        try:
            await stage.delete(machine)
        except CloudgraftError as error:
            if error.retry is Retry.SETTLE_FIRST or time.monotonic() >= give_up_at:
                raise Violation(f"a machine that is being made cannot be deleted: {error!r}") from error
            await stage.pause()
        else:
            return


@MEANWHILE_CHECKS.check("D27", after=("many_creates_at_once",))
async def a_list_has_every_page(stage: DriverStage) -> None:
    """A list has all machines when there are more than fit on one of the cloud's pages."""
    size = stage.settings.page_size
    if not size:
        raise NotJudged("no page_size was given: how many machines are on one page of the cloud's list")
    if not stage.traits.complete_list:
        raise NotJudged("the driver declares that a list need not show every machine")
    specs = [stage.spec() for _ in range(size + 1)]
    for start in range(0, len(specs), stage.settings.at_once):
        await asyncio.gather(*(stage.create(spec) for spec in specs[start : start + stage.settings.at_once]))
    listed = [machine.name for machine in await stage.settled_list(time.monotonic())]
    missing = [spec.name for spec in specs if spec.name not in listed]
    expect(not missing, f"of {len(specs)} machines the list has {len(specs) - len(missing)}; a page holds {size}")
    twice = [spec.name for spec in specs if listed.count(spec.name) > 1]
    expect(not twice, f"these machines are on two pages: {', '.join(twice)}")
