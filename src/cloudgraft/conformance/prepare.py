"""Chooses a group before the run, and finds out whether the server under test still answers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cloudgraft.conformance.calls import Answer, Calls
from cloudgraft.conformance.check import Check, Need
from cloudgraft.conformance.kit import KitConfig
from cloudgraft.conformance.report import Exchange, Result, Status
from cloudgraft.conformance.rules import Level
from cloudgraft.conformance.stage import Before, Scene, Stage, foreign
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError, StatusCode, UnavailableError
from cloudgraft.sdk.types import NodeGroup

# -- connection to the server ------------------------------------------------------------------------------------------
# A call that ends the server is the worst answer of all.


_AWAY: Final = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)  # the second while a server shuts down
# gRPC's own messages for a connection that broke or could not be made; a server's UNAVAILABLE has other messages.
_BROKEN: Final = r"failed to connect|connection (reset|refused)|socket closed|broken pipe|GOAWAY"
# The second is a call that ended because the server shut down; the kit's own cancellations have another text.
_CUT: Final = re.compile(rf"^UNAVAILABLE: .*({_BROKEN})|^CANCELLED: CANCELLED$", re.IGNORECASE)
_PAUSE_AWAY: Final = 0.1


def is_broken(error: str) -> bool:
    """Whether an UNAVAILABLE came of a connection that could not be made or broke, and not from the server."""
    return re.search(_BROKEN, error, re.IGNORECASE) is not None


def with_crash(check: Check[Stage], result: Result) -> Result:
    """The result of a check; a failure when the server broke the connection in the middle of it."""
    cut = next((exchange for exchange in result.exchanges if _is_cut(exchange)), None)
    if cut is None or Need.RESTART in check.needs:
        return result
    message = f"the server broke the connection in answer to {cut.rpc}: it crashed, or was restarted"
    return replace(result, status=Status.FAILED, level=Level.MUST, message=message)


async def _is_away(stage: Stage) -> bool:
    """Whether nothing at all is answered."""
    answers = [(await stage.calls.node_groups()).status, (await stage.calls.refresh()).status]
    return all(status in _AWAY for status in answers)


async def comes_back(stage: Stage) -> bool:
    """Waits a while for a server that is unavailable; returns whether it answers again."""
    end = time.monotonic() + stage.config.patience.restart.total_seconds()
    while await _is_away(stage):
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(_PAUSE_AWAY)
    return True


def _is_cut(exchange: Exchange) -> bool:
    return exchange.is_failed and _CUT.search(exchange.answered) is not None


# -- the group under test ----------------------------------------------------------------------------------------------
# Begins a run: reads the server's groups and chooses one to test, or says why none can be used.


_PAUSE = 1.0  # seconds between two attempts
_ROOM = 3  # machines that must fit beside what is there


async def look_around(config: KitConfig, calls: Calls) -> Scene:
    """Reads the state of the server. Changes nothing."""
    await _reach(config, calls)
    first = await first_calls(calls)
    await calls.refresh()
    listed = await calls.node_groups()
    groups = listed.value or first[0].value or ()
    if not groups:
        if listed.is_ok:
            raise PreconditionError("the server has no node groups: give it one with a maximum of at least 3 machines")
        return Scene(groups=(), before={}, group=None, trouble=f"NodeGroups answered {listed.outcome}")
    before = {}
    for group in groups:
        target, instances = await calls.target(group.id), await calls.instances(group.id)
        if target.value is not None and instances.value is not None:
            before[group.id] = Before(target=target.value, instances=instances.value)
    chosen, trouble = _choose(config, groups, before)
    return Scene(
        groups=tuple(groups),
        before=before,
        group=chosen,
        floor=_floor(config, groups, before),
        trouble=trouble,
        first_calls=first,
    )


async def _reach(config: KitConfig, calls: Calls) -> None:
    """Waits for a server that refuses every call because it is starting; raises when it cannot be reached."""
    end = time.monotonic() + config.patience.start.total_seconds()
    while (answer := await calls.node_groups()).status is StatusCode.UNAVAILABLE:
        if (await calls.gpu_label()).status is not StatusCode.UNAVAILABLE:
            return
        if not is_broken(answer.error) and time.monotonic() < end:
            await asyncio.sleep(_PAUSE)
            continue
        address = calls.probe.connection.config.address
        raise UnavailableError(
            f"cannot reach the server at {address}: {answer.error}; is it running, and is TLS right?"
        )


async def first_calls(calls: Calls) -> tuple[Answer[tuple[NodeGroup, ...]], *tuple[Answer[object], ...]]:
    """Makes the calls that an autoscaler may make before its first Refresh (R3)."""
    groups = await calls.node_groups()
    more: list[Answer[object]] = [await calls.group_for_node(foreign())]
    for group in (groups.value or ())[:1]:
        more += [await calls.target(group.id), await calls.instances(group.id)]
    return (groups, *more)


def _choose(
    config: KitConfig, groups: tuple[NodeGroup, ...], before: Mapping[str, Before]
) -> tuple[NodeGroup | None, str]:
    """The group under test, or why there is none although the server may be to blame."""
    if config.group:
        named = next((group for group in groups if group.id == config.group), None)
        if named is None:
            known = ", ".join(repr(group.id) for group in groups)
            raise InvalidArgumentError(f"the server has no group {config.group!r}; it has {known}")
        if problem := _problem(config, named, before):
            raise PreconditionError(f"the group {named.id!r} cannot be tested: {problem}")
        return (named, "") if named.id in before else (None, f"the group {named.id!r} does not answer")
    problems = {group.id: _problem(config, group, before) for group in groups if group.id in before}
    for group in groups:
        if problems.get(group.id) == "":
            return group, ""
    if len(before) < len(groups):
        return None, "the groups that could be tested do not answer"
    reasons = "; ".join(f"{group!r}: {problem}" for group, problem in problems.items())
    raise PreconditionError(f"no group of the server can be tested ({reasons})")


def _problem(config: KitConfig, group: NodeGroup, before: Mapping[str, Before]) -> str:
    """The reason why a group cannot be tested; empty when it can."""
    state = before.get(group.id)
    if state is None:
        return ""
    if not state.is_empty and not config.allow_existing:
        return (
            f"it has {len(state.instances)} machines and a target of {state.target}, and the kit would work beside "
            "them: give it an empty group, or set allowExisting: true"
        )
    if group.max_size - state.target < _ROOM:
        return f"its maximum is {group.max_size} and its target {state.target}: the kit needs room for {_ROOM} more"
    return ""


def _floor(config: KitConfig, groups: tuple[NodeGroup, ...], before: Mapping[str, Before]) -> NodeGroup | None:
    """A group without machines and with a minimum; only one that the kit was given, or may choose freely."""
    names = {config.floor_group} if config.floor_group else {config.group or group.id for group in groups}
    if config.floor_group and config.floor_group not in {group.id for group in groups}:
        raise InvalidArgumentError(f"the server has no group {config.floor_group!r} (floorGroup)")
    for group in groups:
        state = before.get(group.id)
        if group.id in names and group.min_size > 0 and state and state.is_empty:
            return group
    return None
