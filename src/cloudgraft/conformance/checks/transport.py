"""Refresh, deadlines, status codes, TLS, life of a connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from cloudgraft.conformance.check import NotJudged, Violation, check
from cloudgraft.conformance.prepare import first_calls
from cloudgraft.conformance.stage import Stage, foreign
from cloudgraft.sdk.errors import StatusCode

_SINGLE_READS: Final = (
    "every_group_has_a_target",
    "every_group_lists_its_instances",
    "foreign_nodes_belong_to_no_group",
)


@check("R3", "T9")
async def calls_work_before_refresh(stage: Stage) -> None:
    """NodeGroups, NodeGroupForNode, TargetSize and Nodes work before the first Refresh."""
    again = await first_calls(stage.calls)  # what fails after a Refresh too is the matter of other checks
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


@check("R1", "R6")
async def refresh_succeeds(stage: Stage) -> None:
    """Refresh answers OK within the deadline, every time."""
    for _ in range(3):
        (await stage.calls.refresh()).expect()
    for answer in await asyncio.gather(*(stage.calls.refresh() for _ in range(3))):
        answer.expect("three at once")


@check("R1", after=("refresh_succeeds",))
async def refresh_is_quick(stage: Stage) -> None:
    """Refresh leaves half of the deadline: what takes long is done in the background."""
    seconds = min([(await stage.calls.refresh()).seconds for _ in range(2)])
    if seconds > stage.deadline / 2:
        raise Violation(f"Refresh took {seconds:.1f} s of the {stage.deadline:g} s that the autoscaler waits")


@check("R8")
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


@check("R9")
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


@check("R6", "R76", "R89", after=_SINGLE_READS)
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


CHECKS_BEFORE_ALL: Final = (calls_work_before_refresh,)
CHECKS: Final = (
    required_calls_are_implemented,
    refresh_succeeds,
    refresh_is_quick,
    http2_is_agreed_on,
)
CHECKS_AT_ONCE: Final = (calls_may_come_at_the_same_time,)
