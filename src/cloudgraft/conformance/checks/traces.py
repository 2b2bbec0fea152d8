"""Checks the autoscaler's own sequences of calls (T1 to T10), as the judged release makes them."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudgraft.conformance.calls import delete_request
from cloudgraft.conformance.check import Violation, server_checks
from cloudgraft.conformance.releases import Options
from cloudgraft.conformance.stage import Stage, fake, foreign

CHECKS: Final = server_checks()

_GIVEN_UP_AFTER: Final = (0.0005, 0.002, 0.01)  # seconds: before, while and after the server works
_BASICS: Final = ("target_grows_at_once", "new_machines_are_listed", "listed_instances_belong_to_their_group")
_DELETION: Final = (*_BASICS, "deletion_may_be_repeated", "deleted_machines_are_deleting", "stand_ins_are_deleted")


@CHECKS.check("T1", "T10", after=_BASICS)
async def trace_scale_up(stage: Stage) -> None:
    """A loop reads everything, increases by two, sees it in the target, and lists the new machines until they join."""
    await stage.make_room(2)
    await _loop(stage)
    before, known = await stage.target(), {listed.id for listed in await stage.instances()}
    new = await stage.grow(2)
    if (after := await stage.target()) != before + 2:
        raise Violation(f"the target was {before}, IncreaseSize by 2 succeeded, and once they are listed it is {after}")
    if known.intersection(new):
        raise Violation(f"new machines have ids that were listed before: {sorted(known.intersection(new))}")
    await _loop(stage)
    await _expect_invariants(stage)


@CHECKS.check("T2", "T10", after=(*_BASICS, "registered_nodes_belong_to_their_group"))
async def trace_registration(stage: Stage) -> None:
    """A node joins under a listed id: it belongs to the group, stays listed, and the target stays."""
    [own] = await stage.machines(1)
    target = await stage.target()
    found = (await stage.calls.group_for_node(stage.real(own))).expect()
    if (found.id, found.min_size, found.max_size) != (stage.group.id, stage.group.min_size, stage.group.max_size):
        raise Violation(f"the node of {own!r} is in {found.id!r} ({found.min_size} to {found.max_size})")
    if await stage.lost([own], of=1) or await stage.target() != target:
        raise Violation(f"{own!r} joined, and is no longer listed or the target of {target} changed")
    await _expect_invariants(stage)


@CHECKS.check("T4", "R50", "T10", after=(*_DELETION, "decrease_with_nothing_to_give_back_is_ok"))
async def trace_slow_start(stage: Stage) -> None:
    """Machines that never join are deleted by stand-ins, and the target is back where it was."""
    await stage.make_room(2)
    before = await stage.target()
    await _delete_as_never_joined(stage, await stage.grow(2))
    if (after := await stage.target()) != before:
        raise Violation(f"two machines were asked for and deleted again, and the target went from {before} to {after}")
    await _expect_invariants(stage)


@CHECKS.check("R61", "R63", "T4", "T10", after=("trace_slow_start",), since="1.36")
async def trace_timed_out_scale_up(stage: Stage) -> None:
    """The whole of a scale-up that took too long is taken back, and its machines are deleted: each counts out once."""
    await stage.make_room(2)
    before = await stage.target()
    new = await stage.grow(2)
    (await stage.calls.decrease(stage.group.id, -2)).expect("of the whole increase that timed out")
    live, target = await stage.live(), await stage.target()
    if target < len(live):
        raise Violation(f"after DecreaseTargetSize by -2 the target is {target}, with {len(live)} live instances")
    await _delete_as_never_joined(stage, new)
    if (after := await stage.target()) != before:
        raise Violation(
            f"two machines were asked for, taken back and deleted: the target went from {before} to {after}"
        )
    await _expect_invariants(stage)


@CHECKS.check(
    "T5", "R60", "T10", after=(*_BASICS, "decrease_gives_back_what_never_came", "decrease_deletes_no_machine")
)
async def trace_lost_request(stage: Stage) -> None:
    """DecreaseTargetSize, however often it comes, never leads below the machines that are there."""
    await stage.make_room(2)
    before = {listed.id for listed in await stage.live() if not listed.is_creating}
    (await stage.increase(2)).expect("by 2")
    for delta in (-2, -1, -1):
        await stage.calls.decrease(stage.group.id, delta)
        live = {listed.id for listed in await stage.live()}
        if not live.issuperset(before):
            raise Violation(f"DecreaseTargetSize by {delta} took away {sorted(before - live)}")
    await _expect_invariants(stage)


@CHECKS.check(
    "T6", "R49", "R55", "T10", after=(*_DELETION, "mixed_deletions_do_nothing", "deletions_may_come_at_the_same_time")
)
async def trace_scale_down(stage: Stage) -> None:
    """Deletions at once, the same again, a foreign one, a mixed one: the target falls by what was meant."""
    ids = await stage.machines(3)
    before, doomed = await stage.target(), ids[:2]
    for again in (False, True):
        answers = await asyncio.gather(*(stage.delete([stage.real(id_)]) for id_ in doomed))
        for answer in answers:
            answer.expect("again" if again else "two at the same time")
        if (after := await stage.target()) != before - 2:
            raise Violation(
                f"the target was {before}, two nodes were deleted {'twice' if again else ''}, it is {after}"
            )
    (await stage.delete([foreign()])).expect_refusal("a foreign node")
    (await stage.delete([stage.real(ids[2]), foreign()])).expect_refusal("a node of the group and a foreign one")
    if (after := await stage.target()) != before - 2:
        raise Violation(f"refused deletions changed the target from {before - 2} to {after}")
    await _expect_invariants(stage)


@CHECKS.check("T7", "R7", "R45", after=("target_grows_at_once",))
async def a_given_up_increase_is_done_once_or_not(stage: Stage) -> None:
    """IncreaseSize that the client gives up is made once or not at all, and that stays so."""
    for seconds in _GIVEN_UP_AFTER:
        await stage.make_room(1)
        before = await stage.target()
        await stage.give_up_increase(1, seconds)
        seen = [await stage.target() for _ in range(3)]
        (await stage.calls.refresh()).expect()
        seen.append(await stage.target())
        if not set(seen) <= {before, before + 1} or seen != sorted(seen):
            raise Violation(f"the target was {before}, IncreaseSize by 1 was given up, and the target then was {seen}")


@CHECKS.check("T7", "R7", "R54", after=("deletion_may_be_repeated", "deleted_machines_are_deleting"))
async def a_given_up_deletion_is_done_once_or_not(stage: Stage) -> None:
    """DeleteNodes that the client gives up is made once or not at all; the repetition makes it so once."""
    for seconds in _GIVEN_UP_AFTER:
        [own] = await stage.machines(1)
        before = await stage.target()
        await stage.calls.probe.give_up(
            "NodeGroupDeleteNodes", delete_request(stage.group.id, [stage.real(own)]), seconds
        )
        if (after := await stage.target()) not in (before, before - 1):
            raise Violation(f"the target was {before}, DeleteNodes of one node was given up, and it is {after}")
        (await stage.delete([stage.real(own)])).expect("again, after the first was given up")
        if (after := await stage.target()) != before - 1:
            raise Violation(f"the target was {before}; one node was deleted, given up and deleted again; it is {after}")


@CHECKS.check("T10", after=("live_instances_are_within_the_target", "listed_instances_belong_to_their_group"))
async def invariants_hold_at_the_end(stage: Stage) -> None:
    """After all that: targets not negative, live machines within them, ids unique, each in its group."""
    await _expect_invariants(stage)


async def _delete_as_never_joined(stage: Stage, ids: list[str]) -> None:
    """One call per group, and one per node before 1.28 (R50)."""
    stand_ins = [fake(id_) for id_ in ids]
    batches = [stand_ins] if stage.release.is_at_least("1.28") else [[node] for node in stand_ins]
    for nodes in batches:
        (await stage.delete(nodes)).expect("machines that never joined")


async def _loop(stage: Stage) -> None:
    """The reads of one loop."""
    calls, group = stage.calls, stage.group.id
    (await calls.refresh()).expect()
    if group not in {each.id for each in (await calls.node_groups()).expect()}:
        raise Violation(f"NodeGroups no longer lists {group!r}")
    for listed in await stage.instances():
        (await calls.group_for_node(fake(listed.id))).expect()
    await calls.template(group)  # other checks are about what it answers
    seen = {await stage.target() for _ in range(4)}
    await calls.options(group, Options())
    if len(seen) > 1:
        raise Violation(f"within one loop the target was {sorted(seen)}")


async def _expect_invariants(stage: Stage) -> None:
    before = stage.scene.before[stage.group.id]
    target, listed = await stage.target(), await stage.instances()
    live = [each for each in listed if not each.is_deleting]
    outside = max(0, sum(not each.is_deleting for each in before.instances) - before.target)
    if target < 0 or len(live) > target + outside:
        raise Violation(f"the target is {target}, and {len(live)} instances are listed that are not deleting")
    if len({each.id for each in listed}) < len(listed):
        raise Violation(f"an id is listed twice: {[each.id for each in listed]}")
    for each in live:
        found = (await stage.calls.group_for_node(fake(each.id))).expect(f"for the listed {each.id!r}")
        if found.id != stage.group.id:
            raise Violation(f"{each.id!r} is listed in {stage.group.id!r} and said to be in {found.id or 'no group'!r}")
