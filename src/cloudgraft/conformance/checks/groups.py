"""NodeGroups: ids, sizes, and that every group answers."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from cloudgraft.conformance.check import Violation, check
from cloudgraft.conformance.stage import Stage, foreign
from cloudgraft.sdk.types import NodeGroup


@check("R12")
async def groups_are_listed(stage: Stage) -> None:
    """NodeGroups succeeds and lists all groups, every time."""
    for _ in range(3):
        listed = (await stage.calls.node_groups()).expect()
        missing = {group.id for group in stage.groups} - {group.id for group in listed}
        if missing:
            raise Violation(f"NodeGroups left out {sorted(missing)}, which it listed a moment before")


@check("R10", "T10", after=("groups_are_listed",))
async def group_ids_are_usable(stage: Stage) -> None:
    """Every group has an id, and no two have the same."""
    ids = [group.id for group in (await stage.calls.node_groups()).expect()]
    if "" in ids:
        raise Violation(f"a group has an empty id: {ids}")
    if doubles := {id_ for id_ in ids if ids.count(id_) > 1}:
        raise Violation(f"more than one group has the id {sorted(doubles)}")


@check("R11", after=("groups_are_listed",))
async def group_sizes_make_sense(stage: Stage) -> None:
    """0 <= min <= max for every group."""
    for group in stage.groups:
        if not 0 <= group.min_size <= group.max_size:
            raise Violation(f"group {group.id!r} has min {group.min_size} and max {group.max_size}")


@check("R4", "R10", "T10", after=("groups_are_listed",))
async def groups_stay_the_same(stage: Stage) -> None:
    """Ids, order, min, max and debug text do not change between two Refreshes."""
    (await stage.calls.refresh()).expect()
    first = (await stage.calls.node_groups()).expect()
    for _ in range(3):
        again = (await stage.calls.node_groups()).expect()
        if again != first:
            raise Violation(f"NodeGroups first gave {_told(first)} and then, without a Refresh, {_told(again)}")
    (await stage.calls.refresh()).expect()
    after = [group.id for group in (await stage.calls.node_groups()).expect()]
    if after != [group.id for group in first]:
        raise Violation(f"after a Refresh the groups are {after} and no longer {[group.id for group in first]}")


@check("R13", "R28", after=("groups_are_listed",))
async def every_group_has_a_target(stage: Stage) -> None:
    """NodeGroupTargetSize succeeds for every listed group."""
    for group in stage.groups:
        (await stage.calls.target(group.id)).expect(f"of {group.id!r}, which is listed")


@check("R13", "R42", after=("groups_are_listed",))
async def every_group_lists_its_instances(stage: Stage) -> None:
    """NodeGroupNodes succeeds for every listed group, in less than 4 MiB."""
    for group in stage.groups:
        (await stage.calls.instances(group.id)).expect(f"of {group.id!r}, which is listed")


@check("T8", after=("groups_are_listed",))
async def unknown_groups_are_refused(stage: Stage) -> None:
    """Every call for a group that does not exist is an error."""
    unknown = f"no-such-group-{uuid4().hex[:8]}"
    what = "the id of a group that does not exist"
    (await stage.calls.target(unknown)).expect_refusal(what)
    (await stage.calls.instances(unknown)).expect_refusal(what)
    (await stage.calls.template(unknown)).expect_refusal(what)
    (await stage.calls.increase(unknown, 1)).expect_refusal(what)
    (await stage.calls.decrease(unknown, -1)).expect_refusal(what)
    (await stage.calls.delete(unknown, [foreign()])).expect_refusal(what)


def _told(groups: tuple[NodeGroup, ...]) -> str:
    return str([(group.id, group.min_size, group.max_size, group.debug) for group in groups])


CHECKS: Final = (
    groups_are_listed,
    group_ids_are_usable,
    group_sizes_make_sense,
    groups_stay_the_same,
    every_group_has_a_target,
    every_group_lists_its_instances,
    unknown_groups_are_refused,
)
