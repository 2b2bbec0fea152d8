"""Whose machine it is: marks that come back, marks of others, and others who are left alone."""

from __future__ import annotations

import time

from cloudgraft.conformance.driver.check import driver_check
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.marks import CLUSTER_ID, LONGEST_GROUP, Marks
from cloudgraft.conformance.driver.stage import DriverStage, expect, ids, is_alive, lost_tags
from cloudgraft.sdk.driver import MachineSpec, Ownership
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["CHECKS", "OTHERS"]

_UNUSUAL = 'Größe M/2: "x=1", 50% <&> \\ $HOME'


@driver_check("D9", after=LISTED)
async def marks_come_back(stage: DriverStage) -> None:
    """A list shows a machine with the marks that it was made with, byte for byte, also with the longest name."""
    for group in ("pool", "a-group-with-quite-a-long-id"):
        spec = stage.spec(group)
        await stage.create(spec)
        await expect_marks(stage, spec, time.monotonic())


async def expect_marks(stage: DriverStage, spec: MachineSpec, ended: float) -> None:
    """Fails unless a list shows the machine with its marks, as the traits say that it proves whose it is."""
    machine = await stage.the_one(spec.name, ended)
    if stage.traits.ownership is Ownership.TAGS:
        wrong = lost_tags(machine, spec.tags)
        expect(not wrong, f"list() shows {machine.name} with other tags than it was made with: {wrong}")


@driver_check("D10", after=("marks_come_back",))
async def unusual_group_ids_survive(stage: DriverStage) -> None:
    """A tag with a long or unusual group id is kept as it is, or refused with InvalidArgumentError."""
    for group in (_UNUSUAL, "long-" * (LONGEST_GROUP // 5)):
        spec = stage.spec(group)
        try:
            await stage.create(spec)
        except InvalidArgumentError:
            continue
        await expect_marks(stage, spec, time.monotonic())


@driver_check("D11", "D12", after=("marks_come_back", "only_that_machine_is_deleted"))
async def others_are_left_alone(stage: DriverStage) -> None:
    """A machine of another cluster shows that cluster's marks, and stays when ours is deleted; so do all others."""
    other = Marks()
    before = [m for m in await stage.calls.list() if not stage.marks.is_ours(m) and not stage.marks.is_of_some_run(m)]
    theirs, ours = stage.spec(marks=other), stage.spec()
    await stage.create(theirs)
    mine = await stage.create(ours)
    await expect_marks(stage, theirs, time.monotonic())
    await stage.delete(mine)
    listed = await stage.settled_list(time.monotonic())
    left = [machine for machine in listed if machine.name == theirs.name and is_alive(machine)]
    if stage.traits.complete_list:
        expect(left, f"{theirs.name}, which has the {CLUSTER_ID} of another cluster, is gone after ours was deleted")
        missing = {m.machine_id for m in before if is_alive(m)} - {m.machine_id for m in listed}
        gone = ids(m for m in before if m.machine_id in missing)
        expect(not missing, f"machines that the kit did not make were there before and are gone: {gone}")


CHECKS = (marks_come_back, unusual_group_ids_survive)
OTHERS = (others_are_left_alone,)
