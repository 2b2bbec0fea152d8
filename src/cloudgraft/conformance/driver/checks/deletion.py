"""Checks deletion and ownership of machines."""

from __future__ import annotations

import secrets
import time

from cloudgraft.conformance.check import NotJudged, Violation
from cloudgraft.conformance.driver.checks.answers import LISTED
from cloudgraft.conformance.driver.driver_check import driver_checks
from cloudgraft.conformance.driver.stage import DriverStage, expect, ids, is_alive, lost_tags
from cloudgraft.conformance.driver.under_test import CLUSTER_ID, LONGEST_GROUP, Marks
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Ownership
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

CHECKS = driver_checks()
OWNERSHIP_CHECKS = driver_checks()
OTHERS_CHECKS = driver_checks()

# -- deletion ----------------------------------------------------------------------------------------------------------


@CHECKS.check("D24", after=LISTED, first=True)
async def a_deleted_machine_goes(stage: DriverStage) -> None:
    """A deleted machine is absent or DELETING in every list that begins list_delay later, and is gone in the end."""
    machine = await stage.create()
    await stage.the_one(machine.name, time.monotonic())
    await stage.delete(machine)
    shown = [m for m in await stage.settled_list(time.monotonic()) if m.machine_id == machine.machine_id]
    states = ", ".join(m.state.name for m in shown)
    expect(
        not any(is_alive(m) for m in shown),
        f"delete() ended without an error, and {stage.delay:g} s (list_delay) later the list shows it as {states}",
    )
    seconds = stage.settings.patience.total_seconds() + stage.delay
    is_gone = await stage.wait_for(lambda listed: all(m.machine_id != machine.machine_id for m in listed), seconds)
    expect(is_gone, f"{seconds:g} s after it was deleted the list still shows {machine.machine_id} as {states}")


@CHECKS.check("D5", after=("a_deleted_machine_goes",), machines=2, first=True)
async def ids_outlive_a_deletion(stage: DriverStage) -> None:
    """A machine keeps its id when another one is deleted."""
    doomed, kept = await stage.create(), await stage.create()
    await stage.delete(doomed)
    for machine in await stage.settled_list(time.monotonic()):
        is_same = machine.name != kept.name or machine.machine_id == kept.machine_id
        expect(
            is_same, f"the machine_id was {kept.machine_id!r}, and is {machine.machine_id!r} now that another is gone"
        )


@CHECKS.check("D25", after=("a_deleted_machine_goes", "ids_outlive_a_deletion"), machines=3, first=True)
async def only_that_machine_is_deleted(stage: DriverStage) -> None:
    """Of several machines, only the one whose machine_id was given is deleted."""
    machines = [await stage.create() for _ in range(3)]
    await stage.delete(machines[1])
    listed = {m.machine_id for m in await stage.settled_list(time.monotonic()) if is_alive(m)}
    lost = [m for m in (machines[0], machines[2]) if m.machine_id not in listed]
    if stage.traits.complete_list:
        expect(not lost, f"{machines[1].machine_id} was deleted, and these are gone too: {ids(lost)}")


@CHECKS.check("D25", after=("only_that_machine_is_deleted",), machines=2)
async def of_two_with_one_name_one_is_deleted(stage: DriverStage) -> None:
    """Where a second create makes a second machine of the same name, delete removes the one with that machine_id."""
    if stage.is_idempotent:
        raise NotJudged("the driver declares that no two machines have one name")
    spec = stage.spec()
    first = await stage.create(spec)
    second = await stage.create_again(stage.asked(first))
    if isinstance(second, CloudgraftError):
        raise NotJudged(f"a second create made no second machine: {second!r}")
    if first.machine_id == second.machine_id:
        raise NotJudged("a second create made no second machine")
    await stage.delete(second)
    listed = {m.machine_id: m for m in await stage.settled_list(time.monotonic())}
    kept, gone = listed.get(first.machine_id), listed.get(second.machine_id)
    expect(kept is not None and is_alive(kept), f"{second.machine_id} was deleted, and its twin {ids([first])} is gone")
    expect(gone is None or not is_alive(gone), f"{second.machine_id} was deleted, and is still there")


@CHECKS.check("D23", after=("a_deleted_machine_goes",))
async def deleting_again_is_no_error(stage: DriverStage) -> None:
    """Deleting a machine that is being deleted, that is gone, or that never was, is nothing, or NotFoundError."""
    machine = await stage.create()
    await stage.the_one(machine.name, time.monotonic())
    await stage.delete(machine)
    await _delete_again(stage, machine, "was just deleted")
    await stage.wait_for(
        lambda listed: all(m.machine_id != machine.machine_id for m in listed),
        stage.settings.patience.total_seconds() + stage.delay,
    )
    await _delete_again(stage, machine, "is gone")
    never = Machine(name=stage.marks.new_name(), machine_id=f"conformance-never-was-{secrets.token_hex(8)}")
    await _delete_again(stage, never, "never was", InvalidArgumentError)


async def _delete_again(stage: DriverStage, machine: Machine, what: str, *fine: type[CloudgraftError]) -> None:
    try:
        await stage.delete(machine)
    except CloudgraftError as error:
        if isinstance(error, fine):
            return
        raise Violation(f"delete() of a machine that {what} raised {error!r}") from error


# -- ownership ---------------------------------------------------------------------------------------------------------


_UNUSUAL = 'Größe M/2: "x=1", 50% <&> \\ $HOME'


@OWNERSHIP_CHECKS.check("D9", after=LISTED, machines=2, first=True)
async def marks_come_back(stage: DriverStage) -> None:
    """A list shows a machine with the marks that it was made with, byte for byte, also with the longest name."""
    groups = ("pool", "a-group-with-quite-a-long-id")
    made = [await stage.create(stage.spec(group)) for group in groups]
    ended = time.monotonic()
    for machine in made:
        await expect_marks(stage, stage.asked(machine), ended)


async def expect_marks(stage: DriverStage, spec: MachineSpec, ended: float) -> None:
    """Fails unless a list shows the machine with its marks, as the ownership trait demands."""
    machine = await stage.the_one(spec.name, ended)
    if stage.traits.ownership is Ownership.TAGS:
        wrong = lost_tags(machine, spec.tags)
        expect(not wrong, f"list() shows {machine.name} with other tags than it was made with: {wrong}")


@OWNERSHIP_CHECKS.check("D10", after=("marks_come_back",), machines=2)
async def unusual_group_ids_survive(stage: DriverStage) -> None:
    """A tag with a long or unusual group id is kept as it is, or refused with InvalidArgumentError."""
    for group in (_UNUSUAL, "long-" * (LONGEST_GROUP // 5)):
        try:
            machine = await stage.create(stage.spec(group))
        except InvalidArgumentError:
            continue
        await expect_marks(stage, stage.asked(machine), time.monotonic())


@OTHERS_CHECKS.check("D11", "D12", after=("marks_come_back", "only_that_machine_is_deleted"), machines=2)
async def others_are_left_alone(stage: DriverStage) -> None:
    """A machine of another cluster shows that cluster's marks, and stays when ours is deleted; so do all others."""
    other = Marks()
    now = await stage.list(time.monotonic())
    before = [m for m in now if _is_of_others(m, stage.marks)]
    theirs = stage.asked(await stage.create(stage.spec(marks=other)))
    mine = await stage.create()
    await expect_marks(stage, theirs, time.monotonic())
    await stage.delete(mine)
    listed = await stage.settled_list(time.monotonic())
    left = [machine for machine in listed if machine.name == theirs.name and is_alive(machine)]
    if stage.traits.complete_list:
        expect(left, f"{theirs.name}, which has the {CLUSTER_ID} of another cluster, is gone after ours was deleted")
        missing = {m.machine_id for m in before} - {m.machine_id for m in listed}
        gone = ids(m for m in before if m.machine_id in missing)
        expect(not missing, f"machines that the kit did not make were there before and are gone: {gone}")


def _is_of_others(machine: Machine, marks: Marks) -> bool:
    """Whether neither this run nor another one of the kit made it.

    A machine that is still being made may have no name and no marks yet, so it may be one of another check.
    """
    if machine.state in (MachineState.PENDING, MachineState.DELETING):
        return False
    return not marks.is_ours(machine) and not marks.is_of_some_run(machine)
