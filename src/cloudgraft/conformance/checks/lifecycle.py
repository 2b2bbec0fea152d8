"""Cleanup, two clients at once, a client that starts again, and how long changes took."""

from __future__ import annotations

import asyncio
from typing import Final

from cloudgraft.client.connection import Connection
from cloudgraft.conformance.calls import Calls
from cloudgraft.conformance.check import Violation, check
from cloudgraft.conformance.probe import Probe
from cloudgraft.conformance.rules.rule import Level
from cloudgraft.conformance.stage import Stage

_CHANGES: Final = ("NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize")


@check("R5", after=("new_machines_are_listed",))
async def cleanup_deletes_nothing(stage: Stage) -> None:
    """Cleanup may come twice; it deletes no machine, and the server goes on answering."""
    await stage.machines(1)
    target, ids = await stage.target(), [listed.id for listed in await stage.live()]
    for _ in range(2):
        (await stage.calls.cleanup()).expect()
    (await stage.calls.refresh()).expect("after Cleanup: another autoscaler may take over")
    if (now := await stage.target()) != target:
        raise Violation(f"Cleanup changed the target from {target} to {now}")
    if gone := await stage.lost(ids, of=len(ids)):
        raise Violation(f"after Cleanup {gone} are deleting or gone")


@check("R89", after=("increases_at_the_same_time_add_up", "deletion_lowers_the_target"))
async def changes_of_two_clients_do_not_mix(stage: Stage) -> None:
    """An increase by one client and a deletion by another at the same time are both made, in whatever order."""
    await stage.make_room(2)
    [own] = await stage.machines(1)
    before = await stage.target()
    async with Connection(stage.calls.probe.connection.config) as connection:
        other = Calls(Probe(connection, stage.release))
        grown, deleted = await asyncio.gather(stage.increase(1), stage.delete([stage.real(own)], calls=other))
    deleted.expect("while another client increases")
    expected = before - 1 + grown.is_ok
    if (after := await stage.target()) != expected:
        raise Violation(
            f"the target was {before}; at the same time IncreaseSize by 1 was answered {grown.outcome} and a node was "
            f"deleted; it should be {expected} and is {after}"
        )


@check("R3", "R88", "T9", after=("deleted_machines_are_deleting", "calls_work_before_refresh"))
async def a_new_client_finds_everything(stage: Stage) -> None:
    """An autoscaler that starts again finds the same targets and machines, and deletions go on without it."""
    ids = await stage.machines(2)
    (await stage.delete([stage.real(ids[0])])).expect()
    target, known = await stage.target(), [listed.id for listed in await stage.live()]
    async with Connection(stage.calls.probe.connection.config) as connection:
        calls = Calls(Probe(connection, stage.release))
        groups = (await calls.node_groups()).expect("of a new client")
        listed = (await calls.instances(stage.group.id)).expect("of a new client")
        found = (await calls.group_for_node(stage.real(ids[1]))).expect("of a new client")
        now = (await calls.target(stage.group.id)).expect("of a new client")
    if stage.group.id not in {group.id for group in groups} or found.id != stage.group.id:
        raise Violation(f"a new client does not find the group {stage.group.id!r} or the node {ids[1]!r} in it")
    live = {each.id for each in listed if not each.is_deleting}
    if now != target or ids[0] in live or await stage.lost(known, of=len(known)):
        raise Violation(f"a new client finds target {now} and {sorted(live)} instead of {target} and {sorted(known)}")


@check("R7", "R44", "R54", level=Level.SHOULD, after=("increase_answers_in_time", "deletion_answers_in_time"))
async def changes_are_answered_soon(stage: Stage) -> None:
    """Changes leave half of the deadline: what takes long is done after the answer."""
    for rpc in _CHANGES:
        seconds = stage.calls.probe.slowest.get(rpc, [0.0])[0]  # once may have been an accident
        if seconds > stage.deadline / 2:
            raise Violation(
                f"{rpc} took {seconds:.1f} s of the {stage.deadline:g} s that the autoscaler waits: the cloud is "
                "called inside the call, and a larger or slower change will not be answered in time"
            )


CHECKS: Final = (
    cleanup_deletes_nothing,
    changes_of_two_clients_do_not_mix,
    a_new_client_finds_everything,
)
CHECKS_AT_THE_END: Final = (changes_are_answered_soon,)
