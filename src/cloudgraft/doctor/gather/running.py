"""Asks the running server over its admin socket, as `cloudgraft status` and `orphans list` do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from pydantic.alias_generators import to_camel

from cloudgraft.admin.client import AdminClient
from cloudgraft.doctor.inputs import Cloud, DockedDriver, Group, Guard, Machine, Oddity, Server
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.errors import CloudgraftError

_SECONDS: Final = 30.0
_Json = Mapping[str, Any]
T = TypeVar("T", Server, Group, Machine, Cloud, Guard, Oddity, DockedDriver)


async def ask_server(client: AdminClient) -> tuple[Server | None, str]:
    """Returns the server's answers, or the reason why there are none."""
    try:
        async with asyncio.timeout(_SECONDS), client:
            status = await client.call("Status", {"machines": True})
            odd = await _oddities(client)
            drivers = await _drivers(client)
    except CloudgraftError as error:
        return None, error.message
    except TimeoutError:
        return None, f"the server did not answer within {_SECONDS:g} s"
    return replace(_server(status, odd), drivers=drivers), ""


async def _oddities(client: AdminClient) -> tuple[Oddity, ...]:
    """None for a server that does not lead: that is reported already."""
    try:
        answer: Any = await client.call("ListOrphans")
    except CloudgraftError:
        return ()
    return tuple(_read(Oddity, one) for one in answer["orphans"])


async def _drivers(client: AdminClient) -> tuple[DockedDriver, ...]:
    """None for a server without a dock."""
    try:
        answer: Any = await client.call("DockDrivers")
    except CloudgraftError:
        return ()
    return tuple(_read(DockedDriver, one) for one in answer["drivers"])


def _server(status: _Json, odd: tuple[Oddity, ...]) -> Server:
    return _read(
        Server,
        status,
        prefix=Identity(status["cluster"], status["clusterId"]).prefix,
        node_problems=tuple(status.get("nodeProblems", ())),
        groups=tuple(_group(group) for group in status["groups"]),
        machines=tuple(_machine(group["id"], one) for group in status["groups"] for one in group["machines"]),
        clouds=tuple(
            _read(Cloud, cloud, is_up=cloud["up"], paused=_paused(cloud["paused"])) for cloud in status["clouds"]
        ),
        guards=tuple(_read(Guard, guard, name=guard["guard"]) for guard in status["guards"]),
        oddities=odd,
    )


def _read(kind: type[T], data: _Json, **given: Any) -> T:
    """Fills each field that is not given from the key of its name; a key that an older server lacks is the default."""
    names = {field.name: to_camel(field.name) for field in fields(kind) if field.name not in given}
    return kind(**{name: data[key] for name, key in names.items() if key in data}, **given)


def _group(group: _Json) -> Group:
    # A paused cloud is reported once, not again for each of its groups.
    is_own = group["paused"] is not None and group["paused"]["scope"] == "group"
    return _read(Group, group, paused=_paused(group["paused"]) if is_own else "", has_price=bool(group["hourly"]))


def _paused(pause: _Json | None) -> str:
    return f"paused since {pause['since']}: {pause['reason'] or 'no reason given'}" if pause else ""


def _machine(group: str, machine: _Json) -> Machine:
    error = machine["error"] or {}
    return _read(
        Machine,
        machine,
        group=group,
        error_code=error.get("code", ""),
        error_message=error.get("message", ""),
        error_class=error.get("errorClass", 0),
    )
