"""Checks the connection: Refresh, Cleanup, deadlines, status codes, TLS, several clients."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from cloudgraft.client.connection import Connection
from cloudgraft.conformance.calls import Calls, Probe
from cloudgraft.conformance.check import NotJudged, Violation, server_checks
from cloudgraft.conformance.prepare import first_calls
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Stage, foreign
from cloudgraft.sdk.errors import StatusCode

CHECKS_BEFORE_ALL: Final = server_checks()
CHECKS: Final = server_checks()
CHECKS_AT_ONCE: Final = server_checks()
LIFECYCLE_CHECKS: Final = server_checks()
CHECKS_AT_THE_END: Final = server_checks()

# -- calls and connection ----------------------------------------------------------------------------------------------


_SINGLE_READS: Final = (
    "every_group_has_a_target",
    "every_group_lists_its_instances",
    "foreign_nodes_belong_to_no_group",
)


@CHECKS_BEFORE_ALL.check("R3", "T9")
async def calls_work_before_refresh(stage: Stage) -> None:
    """NodeGroups, NodeGroupForNode, TargetSize and Nodes work before the first Refresh."""
    again = await first_calls(stage.calls)  # other checks judge what fails after a Refresh too
    works_now = {answer.rpc for answer in again if answer.is_ok}
    for answer in stage.scene.first_calls:
        if answer.rpc in works_now:
            answer.expect("before any Refresh, and after one it does")
    first = stage.scene.first_calls[0].value
    if isinstance(first, tuple) and not first and stage.scene.groups:
        raise Violation(
            f"NodeGroups listed no group before the first Refresh and {len(stage.scene.groups)} after it: an "
            "autoscaler that restarts would take the groups for removed"
        )


@CHECKS.check("R8")
async def required_calls_are_implemented(stage: Stage) -> None:
    """Only the template, the options and the two prices may be answered with code 12 (Unimplemented)."""
    group = stage.scene.group.id if stage.scene.group else "no-such-group"
    answers = (
        await stage.calls.node_groups(),
        await stage.calls.group_for_node(foreign()),
        await stage.calls.target(group),
        await stage.calls.instances(group),
        await stage.calls.increase(group, 0),
        await stage.calls.decrease(group, 0),
        await stage.calls.delete(group, [foreign()]),
        await stage.calls.refresh(),
    )
    missing = [answer.rpc for answer in answers if answer.status is StatusCode.UNIMPLEMENTED]
    if missing:
        raise Violation(
            f"{', '.join(missing)} answered code 12 (Unimplemented), which the autoscaler takes for a failure"
        )


@CHECKS.check("R1", "R6")
async def refresh_succeeds(stage: Stage) -> None:
    """Refresh answers OK within the deadline, every time."""
    for _ in range(3):
        (await stage.calls.refresh()).expect()
    for answer in await asyncio.gather(*(stage.calls.refresh() for _ in range(3))):
        answer.expect("three at once")


@CHECKS.check("R1", after=("refresh_succeeds",))
async def refresh_is_quick(stage: Stage) -> None:
    """Refresh leaves half of the deadline: what takes long is done in the background."""
    seconds = min([(await stage.calls.refresh()).seconds for _ in range(2)])
    if seconds > stage.deadline / 2:
        raise Violation(f"Refresh took {seconds:.1f} s of the {stage.deadline:g} s that the autoscaler waits")


@CHECKS.check("R9")
async def http2_is_agreed_on(stage: Stage) -> None:
    """With TLS the server agrees on HTTP/2 by ALPN; autoscalers since 1.33 insist on it."""
    config = stage.calls.probe.connection.config
    if config.address.is_unix or not config.is_encrypted:
        raise NotJudged("the connection is plain text: give a cloudConfig with cert, key and cacert to judge TLS")
    context = ssl.create_default_context(cafile=config.cacert or None)
    if config.cert:
        context.load_cert_chain(config.cert, config.key)
    context.set_alpn_protocols(["h2"])
    name = config.server_name or config.address.host
    try:
        async with asyncio.timeout(config.grpc_timeout.total_seconds()):
            _, writer = await asyncio.open_connection(
                config.address.host, int(config.address.port), ssl=context, server_hostname=name
            )
    except (OSError, TimeoutError) as error:
        raise Violation(f"no TLS connection can be made as {name!r}: {error}") from error
    agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
    writer.transport.abort()
    if agreed != "h2":
        raise Violation(f"the server did not agree on h2 by ALPN, but on {agreed!r}")


@CHECKS_AT_ONCE.check("R6", "R76", "R89", after=_SINGLE_READS)
async def calls_may_come_at_the_same_time(stage: Stage) -> None:
    """Many reads at once are all answered, and targets alike."""
    group = stage.group.id
    targets = [stage.calls.target(group) for _ in range(10)]
    lists = [stage.calls.instances(group) for _ in range(10)]
    nodes = [stage.calls.group_for_node(foreign()) for _ in range(10)]
    sizes, listed, groups = await asyncio.gather(
        asyncio.gather(*targets), asyncio.gather(*lists), asyncio.gather(*nodes)
    )
    for answer in (*listed, *groups):
        answer.expect("ten at once")
    found = {answer.expect("ten at once") for answer in sizes}
    if len(found) > 1:
        raise Violation(f"ten NodeGroupTargetSize at once gave different answers: {sorted(found)}")


# -- several clients ---------------------------------------------------------------------------------------------------


_CHANGES: Final = ("NodeGroupIncreaseSize", "NodeGroupDeleteNodes", "NodeGroupDecreaseTargetSize")


@LIFECYCLE_CHECKS.check("R5", after=("new_machines_are_listed",))
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


@LIFECYCLE_CHECKS.check("R89", after=("increases_at_the_same_time_add_up", "deletion_lowers_the_target"))
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


@LIFECYCLE_CHECKS.check("R3", "R88", "T9", after=("deleted_machines_are_deleting", "calls_work_before_refresh"))
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


@CHECKS_AT_THE_END.check(
    "R7", "R44", "R54", level=Level.SHOULD, after=("increase_answers_in_time", "deletion_answers_in_time")
)
async def changes_are_answered_soon(stage: Stage) -> None:
    """Changes leave half of the deadline: what takes long is done after the answer."""
    for rpc in _CHANGES:
        seconds = stage.calls.probe.slowest.get(rpc, [0.0])[0]  # once may have been an accident
        if seconds > stage.deadline / 2:
            raise Violation(
                f"{rpc} took {seconds:.1f} s of the {stage.deadline:g} s that the autoscaler waits: the cloud is "
                "called inside the call, and a larger or slower change will not be answered in time"
            )
