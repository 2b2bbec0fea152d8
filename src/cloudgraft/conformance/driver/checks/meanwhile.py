"""What happens at the same time: lists during changes, a deletion in mid-create; and lists of more than a page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.check import driver_check
from cloudgraft.conformance.driver.stage import DriverStage, expect, is_alive
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, Retry

__all__ = ["CHECKS"]


@driver_check("D18", after=("many_creates_at_once",))
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


@driver_check("D26", after=("deleting_again_is_no_error", "lists_work_meanwhile"))
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
    """Deletes it; "not now" is fine for a while."""
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


@driver_check("D27", after=("many_creates_at_once",))
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


CHECKS = (lists_work_meanwhile, a_machine_can_be_deleted_in_mid_create, a_list_has_every_page)
