"""Checks that one name gets one machine, also when calls run at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from cloudgraft.conformance.check import Inconclusive, NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.denials import FULL
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.stage import DriverStage, all_of, expect, ids, is_alive, lost_tags
from cloudgraft.conformance.driver.under_test import PASSING
from cloudgraft.sdk.driver import Idempotency, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import AlreadyExistsError, CloudgraftError, DeadlineError, Retry

CHECKS = driver_checks()
MEANWHILE_CHECKS = driver_checks()

_ATTEMPTS = 3

# -- one machine per name ----------------------------------------------------------------------------------------------
# One machine for one name: a second create, two at once, many at once, and after a restart of the driver.


@CHECKS.check("D13", after=LISTED, machines=2)
async def a_second_create_adds_nothing(stage: DriverStage) -> None:
    """Where create is idempotent, the list has one machine after a second create of its name."""
    _needs_idempotency(stage)
    spec = stage.asked(await stage.create())
    await stage.create_again(spec)
    await expect_one(stage, spec, "create() was called twice, one after the other")


@CHECKS.check("D14", after=("a_second_create_adds_nothing",))
async def a_second_create_is_answered_as_declared(stage: DriverStage) -> None:
    """A second create answers with the first machine (token), or raises AlreadyExistsError (unique name)."""
    _needs_idempotency(stage)
    first = await stage.create()
    second = await stage.create_again(stage.asked(first))
    if isinstance(second, DeadlineError):
        raise Inconclusive(f"no second create was answered ({second!r}): test when the cloud answers in time")
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


@CHECKS.check("D15", after=("a_second_create_adds_nothing",), machines=2)
async def two_creates_of_one_name_at_once(stage: DriverStage) -> None:
    """Where create is idempotent, two creates of one name at the same time make one machine."""
    _needs_idempotency(stage)
    story = "create() was called twice at once"
    left = _ATTEMPTS
    while True:
        spec = stage.spec()
        answers = await asyncio.gather(*(_once(stage, spec) for _ in range(2)))
        made = [answer for answer in answers if isinstance(answer, Machine)]
        same = len({machine.machine_id for machine in made}) <= 1
        expect(same, f"two creates of one name at once made two machines: {ids(made)}")
        is_unclear = not made and any(isinstance(answer, (*PASSING, *FULL)) for answer in answers)
        if not made and not is_unclear:
            raise Violation(f"of two creates of one name none answered with the machine: {answers!r}")
        if await expect_one(stage, spec, story, may_be_missing=is_unclear) or not is_unclear:
            return
        left -= 1
        if not left:
            raise Inconclusive(f"two creates of one name at once gave {answers!r}: test when the cloud takes calls")
        await stage.pause()


@CHECKS.check("D16", after=("a_second_create_adds_nothing", "a_new_machine_is_listed"), alone=True)
async def a_new_driver_knows_the_old_machines(stage: DriverStage) -> None:
    """A new instance of the driver lists the machines of the old one, and creates none of them again."""
    if not stage.settings.is_lasting:
        raise NotJudged("is_lasting is False: the machines live in the driver, and are gone with it")
    made = await stage.create()
    spec = stage.asked(made)
    ended = time.monotonic()
    second = await stage.another()
    found = await stage.the_one(spec.name, ended, second)
    expect(found.machine_id == made.machine_id, f"a new driver shows {made.machine_id} as {found.machine_id}")
    if stage.is_idempotent:
        await stage.create_again(spec, second)
        await expect_one(stage, spec, "create() was called again by a new driver")
    await stage.delete(found, second)
    left = await stage.wait_until_gone([made.machine_id], stage.delay + stage.settings.patience.total_seconds())
    expect(not left, f"a new driver deleted {made.machine_id}, and it is still there")


@CHECKS.check(
    "D17",
    after=("machine_ids_are_their_own", "marks_come_back"),
    machines=lambda settings: settings.at_once,
    first=True,
)
async def many_creates_at_once(stage: DriverStage) -> None:
    """Creates for different names at the same time make one machine each, with its own id, name and marks."""
    ordered, unclear = await all_of(_ordered(stage) for _ in range(stage.settings.at_once))
    ended = time.monotonic()
    made = [machine for _, machine in ordered]
    for spec, machine in ordered:
        expect(machine.name == spec.name, f"create() of {spec.name} answered with {machine.name}")
    expect(len({m.machine_id for m in made}) == len(made), f"{len(made)} creates gave the ids {ids(made)}")
    await stage.expect_listed(made, ended)
    listed = {machine.name: machine for machine in await stage.find([spec.name for spec, _ in ordered], ended)}
    for spec, machine in ordered:
        shown = listed.get(spec.name)
        if shown is None:
            _may_be_missing(stage, spec)
            continue
        same = shown.machine_id == machine.machine_id
        expect(same, f"create() said that {spec.name} is {machine.machine_id}, list() says {shown.machine_id}")
        if stage.traits.ownership is Ownership.TAGS:
            wrong = lost_tags(shown, spec.tags)
            expect(not wrong, f"made with others at once, {spec.name} has wrong tags: {wrong}")
    if unclear is not None:
        raise unclear


async def _ordered(stage: DriverStage) -> tuple[MachineSpec, Machine]:
    """A machine with what was asked for; two answers may be mixed up, so the name proves nothing here."""
    spec = stage.spec()
    try:
        return spec, await stage.create_once(spec)
    except (*PASSING, *FULL):
        machine = await stage.create()
        return stage.asked(machine), machine


async def _once(stage: DriverStage, spec: MachineSpec) -> Machine | CloudgraftError:
    try:
        return await stage.create_once(spec)
    except CloudgraftError as error:
        return error


async def expect_one(stage: DriverStage, spec: MachineSpec, story: str, *, may_be_missing: bool = False) -> bool:
    """Fails unless the list comes to show exactly one machine of this name. Whether it shows one."""
    found = [m for m in await stage.settled_list(time.monotonic()) if m.name == spec.name]
    if not found and not may_be_missing:
        _may_be_missing(stage, spec)
    expect(len(found) <= 1, f"{story}, and there are {len(found)} machines named {spec.name}: {ids(found)}")
    return bool(found)


def _may_be_missing(stage: DriverStage, spec: MachineSpec) -> None:
    expect(not stage.traits.complete_list, f"no list shows {spec.name}, although its create succeeded")


def _needs_idempotency(stage: DriverStage) -> None:
    if not stage.is_idempotent:
        raise NotJudged("the driver declares Idempotency.NONE: the engine never creates twice without a list between")


# -- concurrent calls --------------------------------------------------------------------------------------------------
# Lists during changes, a deletion during a create, and lists of more than a page.


@MEANWHILE_CHECKS.check(
    "D18", after=("many_creates_at_once",), machines=lambda settings: 1 + settings.at_once // 2, first=True
)
async def lists_work_meanwhile(stage: DriverStage) -> None:
    """A list works while machines are being made and deleted, and shows what was there all the time."""
    steady = stage.asked(await stage.create())
    await stage.the_one(steady.name, time.monotonic())
    count = stage.fitting(stage.settings.at_once // 2)
    changes = [asyncio.create_task(_come_and_go(stage)) for _ in range(count)]
    unclear: CloudgraftError | None = None
    lists = 0
    try:
        while any(not change.done() for change in changes):
            try:
                listed = await _list_now(stage)
            except PASSING as error:
                unclear = error
                await stage.pause()
                continue
            lists += 1
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
    if unclear is not None and not lists:
        raise Inconclusive(f"no list() worked while machines were made: {unclear!r}; test when the cloud takes calls")


async def _come_and_go(stage: DriverStage) -> None:
    for _ in range(2):
        await stage.delete(await stage.create(stage.spec()))


async def _list_now(stage: DriverStage) -> Sequence[Machine]:
    try:
        return await stage.calls.list()
    except PASSING:
        raise
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
            found = [machine for machine in await stage.list(time.monotonic()) if machine.name == spec.name]
        machine = found[0] if found else await _made(stage, spec, create)
        await _insist(stage, machine)
    finally:
        await asyncio.wait({create})
    if not create.cancelled() and isinstance(create.exception(), Violation):
        raise Violation(f"its create ended badly: {create.exception()}")
    left = [m for m in await stage.settled_list(time.monotonic()) if m.machine_id == machine.machine_id and is_alive(m)]
    expect(
        not left, f"{machine.machine_id} was deleted while it was being made, and is there as {[m.state for m in left]}"
    )


async def _made(stage: DriverStage, spec: MachineSpec, create: asyncio.Task[Machine]) -> Machine:
    """The machine of a create that ended; an unknown outcome is settled by list."""
    try:
        return await create
    except DeadlineError as error:
        found = await stage.settled(spec)
        if found is None:
            raise Inconclusive(
                f"the outcome of create() was unknown, and no list showed a machine: {error!r}"
            ) from error
        return found


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


@MEANWHILE_CHECKS.check(
    "D27",
    after=("many_creates_at_once",),
    machines=lambda settings: settings.page_size + 1 if settings.page_size else 0,
    first=True,
)
async def a_list_has_every_page(stage: DriverStage) -> None:
    """A list has all machines when there are more than fit on one of the cloud's pages."""
    size = stage.settings.page_size
    if not size:
        raise NotJudged("no page_size was given: how many machines are on one page of the cloud's list")
    if not stage.traits.complete_list:
        raise NotJudged("the driver declares that a list need not show every machine")
    names: list[str] = []
    for start in range(0, size + 1, stage.settings.at_once):
        count = min(stage.settings.at_once, size + 1 - start)
        made, unclear = await all_of(stage.create() for _ in range(count))
        names += [machine.name for machine in made]
        if unclear is not None:
            raise unclear
    listed = [machine.name for machine in await stage.settled_list(time.monotonic())]
    missing = [name for name in names if name not in listed]
    expect(not missing, f"of {len(names)} machines the list has {len(names) - len(missing)}; a page holds {size}")
    twice = [name for name in names if listed.count(name) > 1]
    expect(not twice, f"these machines are on two pages: {', '.join(twice)}")
