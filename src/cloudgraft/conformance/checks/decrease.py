"""NodeGroupDecreaseTargetSize: gives back what never came, and touches nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudgraft.conformance.check import NotJudged, Violation, check
from cloudgraft.conformance.rules.rule import Level
from cloudgraft.conformance.stage import Stage


@check("R59", after=("increase_answers_in_time",))
async def decrease_by_nothing_is_refused(stage: Stage) -> None:
    """DecreaseTargetSize with a delta of 0 or more is an error and changes nothing."""
    before = await stage.target()
    for delta in (0, 1):
        (await stage.calls.decrease(stage.group.id, delta)).expect_refusal(f"delta {delta}")
        if (after := await stage.target()) != before:
            raise Violation(f"DecreaseTargetSize by {delta} changed the target from {before} to {after}")


@check("R60", "R62", "R64", "T5", after=("decrease_deletes_no_machine", "target_grows_at_once"))
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


@check("R59", "R62", "R63", "T4", "T5", after=("decrease_by_nothing_is_refused", "new_machines_are_listed"))
async def decrease_deletes_no_machine(stage: Stage) -> None:
    """DecreaseTargetSize never deletes a machine that is there, and stops at the number of live instances."""
    await stage.booted(2)
    for delta in (1, 2):
        (await _decrease(stage, delta)).judge()


@check("R60", "R61", "R62", level=Level.SHOULD, after=("decrease_deletes_no_machine",))
async def decrease_with_nothing_to_give_back_is_ok(stage: Stage) -> None:
    """DecreaseTargetSize when every machine is there answers OK: an error would end every loop of the autoscaler."""
    await stage.booted(2)
    answer = await stage.calls.decrease(stage.group.id, -1)
    if not answer.is_ok:
        raise Violation(
            f"all machines are there, and DecreaseTargetSize by -1 was answered {answer.outcome} instead of OK"
        )


@check("R62", after=("decrease_with_nothing_to_give_back_is_ok",))
async def decrease_goes_below_min(stage: Stage) -> None:
    """DecreaseTargetSize does not look at the group's minimum."""
    floor = stage.scene.floor
    if floor is None:
        raise NotJudged("no group without machines has a minimum above 0; name one as floorGroup in kit.yaml")
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
    """One DecreaseTargetSize: before, after, and what was said."""

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
        """What holds however much there was to give back."""
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


CHECKS: Final = (
    decrease_by_nothing_is_refused,
    decrease_deletes_no_machine,
    decrease_gives_back_what_never_came,
    decrease_with_nothing_to_give_back_is_ok,
    decrease_goes_below_min,
)
