"""Checks NodeGroupDeleteNodes."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.stage import Stage, fake, foreign
from cloudgraft.sdk.errors import StatusCode
from cloudgraft.sdk.types import NodeRef

CHECKS: Final = server_checks()
CHECKS_BY_NAME: Final = server_checks()


@CHECKS.check("R52", "T6", after=("new_machines_are_listed",))
async def unknown_nodes_are_not_deleted(stage: Stage) -> None:
    """DeleteNodes of a node that the server never owned is an error and changes nothing."""
    await stage.machines(1)
    before = await _now(stage)
    (await stage.delete([foreign()])).expect_refusal("a node that the server never owned")
    await _expect_unchanged(stage, before)


@CHECKS.check("R52", "T6", after=("unknown_nodes_are_not_deleted",))
async def mixed_deletions_do_nothing(stage: Stage) -> None:
    """DeleteNodes of a node of the group together with an unknown one is an error, and neither is deleted."""
    [own] = await stage.machines(1)
    for nodes in ([stage.real(own), foreign()], [foreign(), stage.real(own)]):
        before = await _now(stage)
        (await stage.delete(nodes)).expect_refusal("a node of the group and one that the server never owned")
        await _expect_unchanged(stage, before)


@CHECKS.check("R52", after=("unknown_nodes_are_not_deleted",))
async def nodes_of_another_group_are_not_deleted(stage: Stage) -> None:
    """DeleteNodes with the id of another group is an error and changes neither group."""
    other = next(
        (group for group, state in stage.scene.before.items() if group != stage.group.id and state.is_empty),
        None,
    )
    if other is None:
        raise NotJudged("the server has no second group without machines")
    [own] = await stage.machines(1)
    before, elsewhere = await _now(stage), await stage.target(other)
    (await stage.delete([stage.real(own)], other)).expect_refusal("a node of another group")
    await _expect_unchanged(stage, before)
    if (after := await stage.target(other)) != elsewhere:
        raise Violation(f"a refused DeleteNodes changed the target of {other!r} from {elsewhere} to {after}")


@CHECKS.check("R6", "R7", "R54", after=("new_machines_are_listed",))
async def deletion_answers_in_time(stage: Stage) -> None:
    """DeleteNodes answers within the deadline: it records the deletion and does not wait for the machine to go."""
    [own] = await stage.machines(1)
    answer = await stage.delete([stage.real(own)])
    if answer.status is StatusCode.DEADLINE_EXCEEDED:
        raise Violation(
            f"DeleteNodes of one node was not answered within {answer.seconds:.1f} s: the machine is deleted in the "
            "call. The autoscaler lets pods return to the node, and then it goes without a drain"
        )
    answer.expect(f"of {own!r}")


@CHECKS.check("R33", "T6", after=("deletion_answers_in_time",))
async def deleted_machines_are_deleting(stage: Stage) -> None:
    """In the very next NodeGroupNodes a deleted machine is listed as deleting, or not at all."""
    [own] = await stage.machines(1)
    (await stage.delete([stage.real(own)])).expect()
    for listed in await stage.instances():
        if listed.id == own and not listed.is_deleting:
            raise Violation(
                f"DeleteNodes of {own!r} succeeded, but it is listed in state {listed.state}, not as deleting"
            )


@CHECKS.check("R25", "R27", "R53", "T6", after=("deletion_answers_in_time", "deleted_machines_are_deleting"))
async def deletion_lowers_the_target(stage: Stage) -> None:
    """The very next NodeGroupTargetSize after DeleteNodes of one node is lower by one."""
    [own] = await stage.machines(1)
    before = await stage.target()
    (await stage.delete([stage.real(own)])).expect()
    after = await stage.target()
    if after != before - 1:
        raise Violation(
            f"the target was {before}, DeleteNodes of one node succeeded, and the next TargetSize is {after}"
        )


@CHECKS.check("R55", "T6", after=("deletion_lowers_the_target",))
async def deletion_may_be_repeated(stage: Stage) -> None:
    """The same DeleteNodes again is OK and lowers the target no further."""
    own = (await stage.machines(4))[0]  # the others, so that the target has somewhere to fall to
    (await stage.delete([stage.real(own)])).expect()
    before = await stage.target()
    for _ in range(2):
        (await stage.delete([stage.real(own)])).expect("the same node again")
        if (after := await stage.target()) != before:
            raise Violation(f"deleting {own!r} a second time changed the target from {before} to {after}")


@CHECKS.check("R33", after=("deleted_machines_are_deleting",))
async def deleted_machines_leave_the_list(stage: Stage) -> None:
    """A deleted machine is gone from the list after some time."""
    [own] = await stage.machines(1)
    (await stage.delete([stage.real(own)])).expect()
    await _wait_until_gone(stage, own)


@CHECKS.check("R55", "R56", after=("deletion_may_be_repeated", "deleted_machines_leave_the_list"))
async def gone_machines_may_be_deleted(stage: Stage) -> None:
    """DeleteNodes of a machine that is gone already is OK and lowers the target no further."""
    own = (await stage.machines(3))[0]
    (await stage.delete([stage.real(own)])).expect()
    await _wait_until_gone(stage, own)
    before = await stage.target()
    (await stage.delete([stage.real(own)])).expect("a machine that is gone: its Node may be there for a while")
    if (after := await stage.target()) != before:
        raise Violation(f"deleting {own!r}, which was gone, changed the target from {before} to {after}")


@CHECKS.check("R53", after=("deletion_lowers_the_target",))
async def deleted_machines_are_not_replaced(stage: Stage) -> None:
    """After a deletion neither the target nor the number of machines rises again."""
    ids = await stage.machines(2)
    (await stage.delete([stage.real(ids[0])])).expect()
    target = await stage.target()
    for _ in range(3):
        (await stage.calls.refresh()).expect()
        now, live = await stage.target(), len(await stage.live())
        if now != target or live > target:
            raise Violation(f"after a deletion the target was {target}; then it was {now}, with {live} live instances")


@CHECKS.check("R50", "R51", "R53", after=("deletion_lowers_the_target",))
async def stand_ins_are_deleted(stage: Stage) -> None:
    """DeleteNodes takes several stand-ins in one call, for machines that never joined."""
    for reason in ("unregistered", ""):
        ids = await stage.machines(2)
        before = await stage.target()
        (await stage.delete([fake(id_, reason) for id_ in ids])).expect(f"two stand-ins, reason {reason!r}")
        after, live = await stage.target(), [listed.id for listed in await stage.live()]
        if after != before - 2:
            raise Violation(f"the target was {before}, two stand-ins were deleted in one call, and it is {after}")
        if still := set(ids).intersection(live):
            raise Violation(f"{sorted(still)} were deleted by stand-ins and are still listed as live")


@CHECKS.check("R49", "R53", "R89", "T6", after=("deletion_lowers_the_target", "deleted_machines_are_deleting"))
async def deletions_may_come_at_the_same_time(stage: Stage) -> None:
    """Ten DeleteNodes calls at once, one node each, all succeed; the target falls by exactly ten."""
    room = stage.group.max_size - await stage.target() + len(await stage.own_live())
    ids = await stage.machines(min(10, room, stage.config.machines))
    before = await stage.target()
    answers = await asyncio.gather(*(stage.delete([stage.real(id_)]) for id_ in ids))
    for answer in answers:
        answer.expect(f"one of {len(ids)} at the same time")
    after, live = await stage.target(), {listed.id for listed in await stage.live()}
    if after != before - len(ids):
        raise Violation(f"the target was {before}, {len(ids)} nodes were deleted at the same time, and it is {after}")
    if still := live.intersection(ids):
        raise Violation(f"all {len(ids)} deletions succeeded, but {sorted(still)} are still listed as live")


@CHECKS.check("R53", "R55", after=("deletion_may_be_repeated", "deletions_may_come_at_the_same_time"))
async def a_node_named_twice_counts_once(stage: Stage) -> None:
    """A node that is in one DeleteNodes twice lowers the target by one."""
    own = (await stage.machines(3))[0]
    before = await stage.target()
    (await stage.delete([stage.real(own), stage.real(own)])).expect("of one node, named twice")
    if (after := await stage.target()) != before - 1:
        raise Violation(f"one machine, named twice in one call, changed the target from {before} to {after}")


@CHECKS.check("R58", "R38", after=("deletion_lowers_the_target",))
async def deletion_goes_below_min(stage: Stage) -> None:
    """DeleteNodes does not look at the group's minimum: that is the autoscaler's job."""
    floor = stage.floor
    [own] = await stage.machines(1, floor.id)
    before = await stage.target(floor.id)
    if before > floor.min_size:
        raise NotJudged(f"the target of {floor.id!r} is {before}, above its minimum of {floor.min_size}")
    answer = await stage.delete([fake(own, "create-error")], floor.id)
    if not answer.is_ok:
        raise Violation(
            f"the target of {floor.id!r} is {before} and its minimum {floor.min_size}; DeleteNodes answered "
            f"{answer.outcome}. Machines that failed could never be deleted"
        )
    if (after := await stage.target(floor.id)) != before - 1:
        raise Violation(f"DeleteNodes below the minimum succeeded, but the target went from {before} to {after}")


@CHECKS_BY_NAME.check("R52", after=("deletion_lowers_the_target", "fresh_nodes_are_found_by_name"))
async def nodes_are_deleted_by_name(stage: Stage) -> None:
    """DeleteNodes of a node without a providerID goes by its name."""
    [own] = await stage.machines(1)
    node = NodeRef(name=stage.node_name(own))
    found = (await stage.calls.group_for_node(node)).expect()
    if found.id != stage.group.id and not stage.config.node_name:
        raise NotJudged(f"no node named {node.name!r} is known; give nodeName in kit.yaml to say how nodes are named")
    before = await stage.target()
    (await stage.delete([node])).expect("a node without a providerID")
    if (after := await stage.target()) != before - 1:
        raise Violation(f"a node was deleted by its name, and the target went from {before} to {after}")


async def _wait_until_gone(stage: Stage, id_: str) -> None:
    async def is_gone() -> bool:
        return all(listed.id != id_ for listed in await stage.instances())

    limit = stage.config.patience.delete
    if not await stage.until(is_gone, limit):
        raise Violation(f"{id_!r} was deleted and is still listed after {limit.total_seconds():g} s")


async def _now(stage: Stage) -> tuple[int, list[str]]:
    """The target and the live instances."""
    return await stage.target(), [listed.id for listed in await stage.live()]


async def _expect_unchanged(stage: Stage, before: tuple[int, list[str]]) -> None:
    target, live = before
    if (now := await stage.target()) != target:
        raise Violation(f"a refused DeleteNodes changed the target from {target} to {now}")
    if gone := await stage.lost(live, of=len(live)):
        raise Violation(f"after a refused DeleteNodes {gone} are deleting or gone")
