"""Checks the target of a group: NodeGroupIncreaseSize raises it, NodeGroupDecreaseTargetSize lowers it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Stage, foreign
from cloudgraft.sdk.errors import StatusCode

INCREASE_CHECKS: Final = server_checks()
CHECKS_AT_ONCE: Final = server_checks()
DECREASE_CHECKS: Final = server_checks()

# -- NodeGroupIncreaseSize ---------------------------------------------------------------------------------------------


_KEPT_FREE: Final = 4  # machines for the checks after the first
_READY: Final = ("every_group_has_a_target", "every_group_lists_its_instances")


@INCREASE_CHECKS.check("R43", "R45", after=_READY)
async def increase_by_nothing_is_refused(stage: Stage) -> None:
    """IncreaseSize with a delta of 0 or less is an error and changes nothing."""
    before = await stage.target()
    for delta in (0, -1):
        (await stage.increase(delta)).expect_refusal(f"delta {delta}")
        if (after := await stage.target()) != before:
            raise Violation(f"IncreaseSize by {delta} changed the target from {before} to {after}")


@INCREASE_CHECKS.check("R43", "R45", after=_READY)
async def increase_beyond_max_is_refused(stage: Stage) -> None:
    """IncreaseSize beyond the group's maximum is an error and changes nothing."""
    before = await stage.target()
    delta = stage.group.max_size - before + 1
    most = 2 * stage.config.machines
    if delta > most:
        raise NotJudged(
            f"a server that allows it would make {delta} machines, and the kit risks {most}: test a group with a "
            f"maximum of at most {most - 1}, or raise `machines` in kit.yaml"
        )
    answer = await stage.increase(delta)
    after = await stage.target()
    if answer.is_ok or after != before:
        raise Violation(
            f"IncreaseSize by {delta} leads from {before} above the maximum of {stage.group.max_size} and must be "
            f"refused; it was answered {answer.outcome}, and the target is {after}"
        )


@INCREASE_CHECKS.check("R6", "R7", "R44", after=_READY)
async def increase_answers_in_time(stage: Stage) -> None:
    """IncreaseSize answers within the deadline also for many machines: it records them and does not wait for them."""
    await stage.make_room(1)
    room = stage.group.max_size - await stage.target()
    delta = max(1, min(stage.config.machines, room) - _KEPT_FREE)
    answer = await stage.increase(delta)
    if answer.status is StatusCode.DEADLINE_EXCEEDED:
        raise Violation(
            f"IncreaseSize by {delta} was not answered within {answer.seconds:.1f} s: the machines are made inside the "
            "call. The autoscaler takes it for a failure and buys elsewhere, while these machines come all the same"
        )
    answer.expect(f"by {delta}, within the maximum of {stage.group.max_size}")


@INCREASE_CHECKS.check("R1", "R6", "R28", "R42", after=("increase_answers_in_time",))
async def reads_are_answered_while_machines_are_made(stage: Stage) -> None:
    """Refresh, TargetSize, Nodes and NodeGroupForNode answer within the deadline while machines are being made."""
    group = stage.group.id
    answers = await asyncio.gather(
        stage.calls.target(group),
        stage.calls.instances(group),
        stage.calls.group_for_node(foreign()),
        stage.calls.refresh(),
    )
    late = [answer.rpc for answer in answers if answer.status is StatusCode.DEADLINE_EXCEEDED]
    if late:
        raise Violation(f"while machines are being made {', '.join(late)} was not answered within the deadline")


@INCREASE_CHECKS.check("R25", "R27", "R45", "T1", after=("reads_are_answered_while_machines_are_made",))
async def target_grows_at_once(stage: Stage) -> None:
    """The very next NodeGroupTargetSize after IncreaseSize shows exactly delta more."""
    await stage.make_room(2)
    before = await stage.target()
    (await stage.increase(2)).expect("by 2")
    after = await stage.target()
    if after != before + 2:
        raise Violation(f"the target was {before}, IncreaseSize by 2 succeeded, and the next TargetSize is {after}")


@INCREASE_CHECKS.check("R46", after=("target_grows_at_once",))
async def two_increases_are_two(stage: Stage) -> None:
    """Two IncreaseSize calls with the same delta add up: no call is taken for a repetition."""
    await stage.make_room(2)
    before = await stage.target()
    (await stage.increase(1)).expect("by 1")
    (await stage.increase(1)).expect("by 1, again")
    after = await stage.target()
    if after != before + 2:
        raise Violation(f"the target was {before}, IncreaseSize by 1 succeeded twice, and the target is {after}")


@INCREASE_CHECKS.check("R27", "R26", after=("target_grows_at_once",))
async def target_stays_the_same(stage: Stage) -> None:
    """The target is the same however often it is asked, over a Refresh and while machines are being made."""
    before = await stage.target()
    seen = [await stage.target() for _ in range(4)]
    (await stage.calls.refresh()).expect()
    await stage.instances()
    seen += [await stage.target() for _ in range(4)]
    if set(seen) != {before}:
        raise Violation(f"nothing was changed, but the target went from {before} to {seen}")


@INCREASE_CHECKS.check("R45", "R46", after=("target_grows_at_once",))
async def other_groups_stay_as_they_are(stage: Stage) -> None:
    """An increase of one group changes the target of no other."""
    unused = [group for group, state in stage.scene.before.items() if state.is_empty and group not in stage.touched]
    if not unused:
        raise NotJudged("the server has no second group without machines")
    for group in unused:
        if after := await stage.target(group):
            raise Violation(
                f"only {stage.group.id!r} was increased, but the target of {group!r} went from 0 to {after}"
            )


@CHECKS_AT_ONCE.check("R46", "R89", after=("two_increases_are_two",))
async def increases_at_the_same_time_add_up(stage: Stage) -> None:
    """Two autoscalers during a change of leader: two increases at once are both made, or refused, never mixed up."""
    await stage.make_room(2)
    before = await stage.target()
    answers = await asyncio.gather(stage.increase(1), stage.increase(1))
    made = sum(answer.is_ok for answer in answers)
    after = await stage.target()
    if after != before + made:
        raise Violation(f"the target was {before}, {made} of two increases by 1 at once succeeded, and it is {after}")


@CHECKS_AT_ONCE.check("R46", after=("two_increases_are_two",))
async def increases_of_two_groups_may_come_at_once(stage: Stage) -> None:
    """With --parallel-scale-up two groups are increased at the same time: each grows by its own delta."""
    other = stage.scene.floor
    if other is None or other.id == stage.group.id:
        raise NotJudged("the kit may use only one group: name a second one, with a minimum, as floorGroup in kit.yaml")
    for group in (stage.group.id, other.id):
        await stage.make_room(2, group)
    before = (await stage.target(), await stage.target(other.id))
    for answer in await asyncio.gather(stage.increase(2), stage.increase(1, other.id)):
        answer.expect("of one group while another grows too")
    after = (await stage.target(), await stage.target(other.id))
    if after != (before[0] + 2, before[1] + 1):
        raise Violation(f"two groups grew at once by 2 and by 1: their targets were {before} and are {after}")


# -- NodeGroupDecreaseTargetSize ---------------------------------------------------------------------------------------


@DECREASE_CHECKS.check("R59", after=("increase_answers_in_time",))
async def decrease_by_nothing_is_refused(stage: Stage) -> None:
    """DecreaseTargetSize with a delta of 0 or more is an error and changes nothing."""
    before = await stage.target()
    for delta in (0, 1):
        (await stage.calls.decrease(stage.group.id, delta)).expect_refusal(f"delta {delta}")
        if (after := await stage.target()) != before:
            raise Violation(f"DecreaseTargetSize by {delta} changed the target from {before} to {after}")


@DECREASE_CHECKS.check(
    "R59", "R62", "R63", "T4", "T5", after=("decrease_by_nothing_is_refused", "new_machines_are_listed")
)
async def decrease_deletes_no_machine(stage: Stage) -> None:
    """DecreaseTargetSize never deletes a machine that is there, and stops at the number of live instances."""
    await stage.booted(2)
    for delta in (1, 2):
        (await _decrease(stage, delta)).judge()


@DECREASE_CHECKS.check("R60", "R62", "R64", "T5", after=("decrease_deletes_no_machine", "target_grows_at_once"))
async def decrease_gives_back_what_never_came(stage: Stage) -> None:
    """Right after an increase, DecreaseTargetSize takes back what has no instance yet, and not more."""
    await stage.make_room(2)
    (await stage.increase(2)).expect("by 2")
    change = await _decrease(stage, 2)
    if change.outcome != "OK" and change.is_short:
        raise Violation(
            f"the target was {change.target} with {len(change.live)} live instances, and DecreaseTargetSize by -2 was "
            f"answered {change.outcome}: the autoscaler ends every loop here, for all groups"
        )
    change.judge()
    if (
        change.outcome == "OK"
        and change.is_short
        and change.target_after > max(change.target - 2, len(change.live_after))
    ):
        raise Violation(
            f"the target was {change.target} with {len(change.live)} live instances; DecreaseTargetSize by -2 was "
            f"answered OK and did nothing: the target is {change.target_after}, with {len(change.live_after)} instances"
        )


@DECREASE_CHECKS.check("R60", "R61", "R62", level=Level.SHOULD, after=("decrease_deletes_no_machine",))
async def decrease_with_nothing_to_give_back_is_ok(stage: Stage) -> None:
    """DecreaseTargetSize when every machine is there answers OK: an error would end every loop of the autoscaler."""
    await stage.booted(2)
    answer = await stage.calls.decrease(stage.group.id, -1)
    if not answer.is_ok:
        raise Violation(
            f"all machines are there, and DecreaseTargetSize by -1 was answered {answer.outcome} instead of OK"
        )


@DECREASE_CHECKS.check("R62", after=("decrease_with_nothing_to_give_back_is_ok",))
async def decrease_goes_below_min(stage: Stage) -> None:
    """DecreaseTargetSize does not look at the group's minimum."""
    floor = stage.floor
    await stage.machines(1, floor.id)
    target = await stage.target(floor.id)
    answer = await stage.calls.decrease(floor.id, -1)
    if not answer.is_ok:
        raise Violation(
            f"the target of {floor.id!r} is {target} and its minimum {floor.min_size}; DecreaseTargetSize by -1 was "
            f"answered {answer.outcome} instead of OK"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One DecreaseTargetSize: the state before and after, and the response."""

    delta: int
    outcome: str
    target: int
    target_after: int
    live: tuple[str, ...]
    live_after: tuple[str, ...]
    there: tuple[str, ...]
    """Those that had left the state creating before."""
    is_short: bool
    """Whether there was something to give back."""

    def judge(self) -> None:
        """Checks what holds whatever the surplus was."""
        if gone := [id_ for id_ in self.there if id_ not in self.live_after]:
            raise Violation(f"DecreaseTargetSize by -{self.delta} deleted {gone}, which were there")
        if self.target_after < len(self.live_after):
            raise Violation(
                f"after DecreaseTargetSize by -{self.delta} the target is {self.target_after}, below the "
                f"{len(self.live_after)} live instances: they are counted out twice when they are deleted"
            )
        if self.target_after < self.target - self.delta:
            raise Violation(
                f"DecreaseTargetSize by -{self.delta} lowered the target from {self.target} to {self.target_after}"
            )


async def _decrease(stage: Stage, delta: int) -> _Change:
    listed, target = await stage.live(), await stage.target()
    answer = await stage.calls.decrease(stage.group.id, -delta)
    target_after, live_after = await stage.target(), await stage.live()
    return _Change(
        delta=delta,
        outcome=answer.outcome,
        target=target,
        target_after=target_after,
        live=tuple(each.id for each in listed),
        live_after=tuple(each.id for each in live_after),
        there=tuple(each.id for each in listed if not each.is_creating),
        is_short=len(listed) < target,
    )
