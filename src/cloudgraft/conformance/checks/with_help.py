"""Checks what needs commands of kit.yaml: stock-out, a slow cloud, a restart, a lost machine."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from cloudgraft.conformance.calls import Answer, Listed
from cloudgraft.conformance.check import Need, NotJudged, Violation, server_checks
from cloudgraft.conformance.stage import Stage, fake
from cloudgraft.sdk.errors import StatusCode

CHECKS: Final = server_checks()

_BOTH: Final = (Need.RESTART, Need.SLOW_CLOUD)
_READY: Final = ("new_machines_are_listed", "deletion_lowers_the_target")


@CHECKS.check("R34", "R35", "R39", "R64", after=("new_machines_are_listed",), needs=(Need.STOCK_OUT,))
async def stock_out_is_told(stage: Stage) -> None:
    """What cannot be bought is listed as creating with an error of class 1, or refused without a trace."""
    await stage.make_room(1)
    before = await stage.target()
    async with stage.hooks.during(Need.STOCK_OUT):
        answer = await stage.increase(1)
        if not answer.is_ok:
            if (after := await stage.target()) != before:
                raise Violation(
                    f"IncreaseSize was refused ({answer.outcome}), but the target went from {before} to {after}"
                )
            return
        failed = await _failed(stage)
    for each in failed:
        if each.error_class != 1:
            raise Violation(f"{each.id!r} is out of stock and has the error class {each.error_class} instead of 1")


@CHECKS.check(
    "R19", "R37", "R38", "T3", after=("stock_out_is_told", "deletion_lowers_the_target"), needs=(Need.STOCK_OUT,)
)
async def failed_machines_can_be_deleted(stage: Stage) -> None:
    """A failed machine is deleted by its stand-in, is at once no longer creating with an error, and counts out once."""
    async with stage.hooks.during(Need.STOCK_OUT):
        failed = [each.id for each in (await stage.instances()) if each.is_failed]
        if not failed:
            await stage.make_room(1)
            if not (await stage.increase(1)).is_ok:
                raise NotJudged("IncreaseSize is refused during a stock-out, so that there is nothing to delete")
            failed = [each.id for each in await _failed(stage)]
        before = await stage.target()
        stand_ins = [fake(id_, "create-error") for id_ in failed]
        for node in stand_ins:
            found = (await stage.calls.group_for_node(node)).expect(f"for the failed instance {node.name!r}")
            if found.id != stage.group.id:
                raise Violation(
                    f"the failed instance {node.name!r} belongs to {found.id or 'no group'!r}: it is never deleted"
                )
        for attempt in ("", "the same again"):
            (await stage.delete(stand_ins)).expect(f"failed instances {attempt}".strip())
            if still := [each.id for each in await stage.live() if each.id in failed]:
                raise Violation(f"DeleteNodes of failed instances succeeded, but {still} are still listed as creating")
            if (after := await stage.target()) != before - len(failed):
                raise Violation(
                    f"{len(failed)} failed instances were deleted, and the target went from {before} to {after}"
                )


@CHECKS.check("R1", "R6", "R7", "R44", "R54", "T7", after=_READY, needs=(Need.SLOW_CLOUD,))
async def a_slow_cloud_slows_no_call(stage: Stage) -> None:
    """While the cloud hangs every call is answered within the deadline, and what was answered stays true."""
    [own] = await stage.machines(1)
    await stage.make_room(1)
    async with stage.hooks.during(Need.SLOW_CLOUD):
        _expect_answer(await stage.calls.refresh())
        before = await stage.target()
        grown = await stage.increase(1)
        _expect_answer(grown)
        deleted = await stage.delete([stage.real(own)])
        _expect_answer(deleted)
        expected = before + grown.is_ok - deleted.is_ok
        if (during := await stage.target()) != expected:
            raise Violation(
                f"IncreaseSize {grown.outcome}, DeleteNodes {deleted.outcome}: target {during}, not {expected}"
            )
        await stage.instances()
    if (after := await stage.target()) != expected:
        raise Violation(
            f"what was answered while the cloud hung did not stay true: target {after} instead of {expected}"
        )


@CHECKS.check("R20", "R56", after=_READY, needs=(Need.LOST_MACHINE,))
async def a_lost_machine_can_be_deleted(stage: Stage) -> None:
    """DeleteNodes of a machine that died behind the server's back is OK, and it counts out once."""
    [own] = await stage.booted(1)
    await stage.hooks.lose(own)
    (await stage.calls.refresh()).expect()
    (await stage.delete([stage.real(own)])).expect("a machine that died: its Node is still there")

    async def agree() -> bool:
        live = {listed.id for listed in await stage.live()}
        return own not in live and len(live) == await stage.target()

    if not await stage.until(agree, stage.config.patience.delete):
        live, target = [listed.id for listed in await stage.live()], await stage.target()
        raise Violation(f"{own!r} was lost and deleted; the target is {target}, and the live instances are {live}")


@CHECKS.check("R10", "R88", "T9", after=(*_READY, "deleted_machines_are_deleting"), needs=(Need.RESTART,))
async def a_restart_loses_nothing(stage: Stage) -> None:
    """After a restart of the server group ids, targets, ids of machines and accepted deletions are as before."""
    ids = await stage.booted(3)
    (await stage.delete([stage.real(ids[0])])).expect()
    groups, target = (await stage.calls.node_groups()).expect(), await stage.target()
    live = [listed.id for listed in await stage.live()]
    await _restart(stage)
    again = (await stage.calls.node_groups()).expect()
    if [group.id for group in again] != [group.id for group in groups]:
        raise Violation(f"after a restart the groups are {[group.id for group in again]}")
    await _expect_after_restart(stage, target, live)
    (await stage.delete([stage.real(ids[0])])).expect("deleted before the restart, and again after it")
    if (now := await stage.target()) != target:
        raise Violation(f"a deletion repeated after a restart changed the target from {target} to {now}")


@CHECKS.check("R33", "R88", "T9", after=("a_restart_loses_nothing", "a_slow_cloud_slows_no_call"), needs=_BOTH)
async def a_restart_in_the_middle_loses_nothing(stage: Stage) -> None:
    """Changes that were accepted while the cloud hung, and not made yet, are not forgotten by a restart."""
    ids = await stage.booted(2)
    await stage.make_room(1)
    async with stage.hooks.during(Need.SLOW_CLOUD):
        deleted, grown = await stage.delete([stage.real(ids[0])]), await stage.increase(1)
        target = await stage.target()
        await _restart(stage)
        if (now := await stage.target()) != target:
            raise Violation(
                f"DeleteNodes was answered {deleted.outcome} and IncreaseSize {grown.outcome}; the target was {target} "
                f"before the restart and is {now} after it"
            )
        if deleted.is_ok and ids[0] in {listed.id for listed in await stage.live()}:
            raise Violation(
                f"the deletion of {ids[0]!r} was accepted before the restart, and after it the machine is back"
            )


async def _restart(stage: Stage) -> None:
    """Restarts the server and waits until it answers."""
    await stage.hooks.restart()

    async def answers() -> bool:
        return (await stage.calls.node_groups()).is_ok

    limit = stage.config.patience.restart
    if not await stage.until(answers, limit):
        raise Violation(f"the server did not answer within {limit.total_seconds():g} s after its restart")


async def _expect_after_restart(stage: Stage, target: int, live: list[str]) -> None:
    if (now := await stage.target()) != target:
        raise Violation(f"after a restart the target is {now} instead of {target}")

    async def are_listed() -> bool:
        found[:] = [listed.id for listed in await stage.live()]
        return len(found) == len(live) and not await stage.lost(live, of=len(live))

    found: list[str] = []
    if not await stage.until(are_listed, stage.config.patience.restart):
        raise Violation(f"after a restart the live instances are {found} instead of {live}")


async def _failed(stage: Stage) -> list[Listed]:
    """Waits for failed instances."""
    failed: list[Listed] = []

    async def is_listed() -> bool:
        failed[:] = [each for each in await stage.instances() if each.has_error]
        return bool(failed)

    limit = stage.config.patience.delete
    if not await stage.until(is_listed, limit):
        raise Violation(
            f"the cloud is out of stock, and within {limit.total_seconds():g} s no instance was listed with an error: "
            "the autoscaler waits 15 minutes before it tries another group"
        )
    for each in failed:
        if not each.is_failed:
            raise Violation(
                f"{each.id!r} has an error with state {each.state} and code {each.code!r}, which the autoscaler ignores"
            )
    return failed


def _expect_answer(answer: Answer[Message]) -> None:
    if answer.status is StatusCode.DEADLINE_EXCEEDED:
        raise Violation(f"the cloud hangs, and {answer.rpc} was not answered within {answer.seconds:.1f} s")
