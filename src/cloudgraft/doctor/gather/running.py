"""Asks the running server over its admin socket, as `cloudgraft status` and `orphans list` do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.admin.client import AdminClient
from cloudgraft.doctor.picture import Cloud, Group, Guard, Machine, Oddity, Server
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.errors import CloudgraftError

_SECONDS: Final = 30.0
_Json = Mapping[str, Any]


async def ask_server(client: AdminClient) -> tuple[Server | None, str]:
    """Returns the server's answers, or the reason why there are none."""
    try:
        async with asyncio.timeout(_SECONDS), client:
            status = await client.call("Status", {"machines": True})
            odd = await _oddities(client)
    except CloudgraftError as error:
        return None, error.message
    except TimeoutError:
        return None, f"the server did not answer within {_SECONDS:g} s"
    return _server(status, odd), ""


async def _oddities(client: AdminClient) -> tuple[Oddity, ...]:
    """None for a server that does not lead: that is reported already."""
    try:
        answer: Any = await client.call("ListOrphans")
    except CloudgraftError:
        return ()
    return tuple(
        Oddity(
            kind=one["kind"],
            cloud=one["cloud"],
            name=one["name"],
            machine_id=one["machineId"],
            detail=one["detail"],
            hint=one["hint"],
        )
        for one in answer["orphans"]
    )


def _server(status: _Json, odd: tuple[Oddity, ...]) -> Server:
    return Server(
        prefix=Identity(status["cluster"], status["clusterId"]).prefix,
        leader_trouble=status["leaderTrouble"],
        opening_trouble=status.get("openingTrouble", ""),
        journal_trouble=status["journalTrouble"],
        config_trouble=status["configTrouble"],
        cluster_trouble=status.get("clusterTrouble", ""),
        node_problems=tuple(status.get("nodeProblems", ())),
        groups=tuple(_group(group) for group in status["groups"]),
        machines=tuple(_machine(group["id"], one) for group in status["groups"] for one in group["machines"]),
        clouds=tuple(_cloud(cloud) for cloud in status["clouds"]),
        guards=tuple(_guard(guard) for guard in status["guards"]),
        oddities=odd,
    )


def _group(group: _Json) -> Group:
    # A paused cloud is reported once, not again for each of its groups.
    is_own = group["paused"] is not None and group["paused"]["scope"] == "group"
    return Group(
        id=group["id"],
        cloud=group["cloud"],
        target=group["target"],
        min_size=group["minSize"],
        max_size=group["maxSize"],
        left_out=group["leftOut"],
        stale=group["stale"],
        paused=_paused(group["paused"]) if is_own else "",
        has_price=bool(group["hourly"]),
    )


def _paused(pause: _Json | None) -> str:
    return f"paused since {pause['since']}: {pause['reason'] or 'no reason given'}" if pause else ""


def _machine(group: str, machine: _Json) -> Machine:
    error = machine["error"] or {}
    return Machine(
        name=machine["name"],
        group=group,
        provider_id=machine["providerId"],
        state=machine["state"],
        state_age=machine["stateAge"],
        error_code=error.get("code", ""),
        error_message=error.get("message", ""),
        error_class=error.get("errorClass", 0),
    )


def _cloud(cloud: _Json) -> Cloud:
    return Cloud(
        name=cloud["name"],
        driver=cloud["driver"],
        is_up=cloud["up"],
        error=cloud["error"],
        error_code=cloud["errorCode"],
        blocked=cloud["blocked"],
        held_back=cloud["heldBack"],
        paused=_paused(cloud["paused"]),
        observe_only=cloud.get("observeOnly", False),
    )


def _guard(guard: _Json) -> Guard:
    return Guard(
        scope=guard["scope"], name=guard["guard"], used=guard["used"], limit=guard["limit"], unit=guard["unit"]
    )
