"""Converts Nova's servers to machines, and orders to Nova's requests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cloudgraft.drivers.openstack.errors import failure_of
from cloudgraft.drivers.openstack.options import USER_DATA_LIMIT
from cloudgraft.drivers.openstack.settings import AUTO, NONE, MachineSettings, check_metadata
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import InvalidArgumentError, UnavailableError
from cloudgraft.sdk.flaws import Flaws

LONGEST_NAME: Final = 255
_GONE: Final = ("DELETED", "SOFT_DELETED")
_DELETING: Final = ("deleting", "soft-deleting")
_STATES: Final[Mapping[str, MachineState]] = {
    "BUILD": MachineState.PENDING,
    "ACTIVE": MachineState.RUNNING,
    "ERROR": MachineState.FAILED,
    **dict.fromkeys(("SHUTOFF", "PAUSED", "SUSPENDED", "SHELVED", "SHELVED_OFFLOADED"), MachineState.STOPPED),
    **dict.fromkeys(
        (
            "REBOOT", "HARD_REBOOT", "MIGRATING", "RESIZE", "VERIFY_RESIZE", "REVERT_RESIZE", "PASSWORD", "RESCUE",
            "REBUILD",
        ),
        MachineState.RUNNING,
    ),
}  # fmt: skip

Found = Mapping[str, str | list[str]]  # ids in the place of names: see lookups


def machine_of(server: Mapping[str, Any], region: str) -> Machine | None:
    """One entry of a list; None when it is gone, and is only still shown.

    Of a server in a cell that does not answer, Nova tells nothing but the id. That list is a part only.
    """
    if "name" not in server:
        raise UnavailableError(
            f"a part of Nova (a cell) does not answer: of the server {server.get('id')} nothing but its id is told"
        )
    status, task = str(server.get("status", "")), server.get("OS-EXT-STS:task_state")
    if status in _GONE:
        return None
    state = MachineState.DELETING if task in _DELETING else _STATES.get(status, MachineState.PENDING)
    why = _why(server, status) if state is not MachineState.DELETING else ""
    return Machine(
        name=str(server["name"]),
        machine_id=str(server["id"]),
        provider_id=provider_id(str(server["id"]), region),
        state=state,
        tags={str(key): str(value) for key, value in server.get("metadata", {}).items()},
        created_at=_time(server.get("created")),
        reason=why,
        addresses=_addresses(server),
        failure=failure_of(why) if state is MachineState.FAILED else "",
    )


def provider_id(server: str, region: str) -> str:
    """As OpenStack's cloud controller writes it on nodes; with a region where it was told to."""
    return f"openstack://{region}/{server}"


def order_of(spec: MachineSpec, settings: MachineSettings, found: Found) -> dict[str, Any]:
    """The body of a request for one server; raises InvalidArgumentError for what Nova would refuse."""
    if not 0 < len(spec.name) <= LONGEST_NAME:
        raise InvalidArgumentError(f"a server's name has 1 to {LONGEST_NAME} characters; this one has {len(spec.name)}")
    flaws = Flaws()
    check_metadata(flaws, "the marks", spec.tags)
    flaws.raise_any()
    data = spec.user_data.encode()
    if len(data) > USER_DATA_LIMIT:
        raise InvalidArgumentError(f"user data has {len(data)} bytes; Nova takes {USER_DATA_LIMIT} at most")
    server: dict[str, Any] = {
        "name": spec.name,
        "flavorRef": found["flavor"],
        "metadata": {**settings.metadata, **spec.tags},
        "networks": _networks(found["networks"]),
    }
    if data:
        server["user_data"] = base64.b64encode(data).decode()
    if settings.key_pair:
        server["key_name"] = settings.key_pair
    if settings.zone:
        server["availability_zone"] = settings.zone
    if settings.security_groups:
        server["security_groups"] = [{"name": name} for name in settings.security_groups]
    if settings.config_drive:
        server["config_drive"] = True
    order = {"server": {**server, **_boot(settings, str(found["image"]))}}
    return {**order, "os:scheduler_hints": {"group": found["group"]}} if found["group"] else order


def _boot(settings: MachineSettings, image: str) -> dict[str, Any]:
    """Nova makes the volume itself, and deletes it with the server: there is no second step that could be lost."""
    volume = settings.boot_volume
    if volume is None:
        return {"imageRef": image}
    disk: dict[str, Any] = {
        "boot_index": 0,
        "uuid": image,
        "source_type": "image",
        "destination_type": "volume",
        "volume_size": volume.size,
        "delete_on_termination": volume.delete_on_termination,
    }
    return {"block_device_mapping_v2": [{**disk, "volume_type": volume.type} if volume.type else disk]}


def _networks(ids: str | list[str]) -> str | list[dict[str, str]]:
    if not ids or ids in ([AUTO], [NONE]):
        return ids[0] if ids else AUTO
    return [{"uuid": network} for network in ids]


def _why(server: Mapping[str, Any], status: str) -> str:
    fault = server.get("fault")
    if status == "ERROR":
        return str(fault.get("message", "")) if isinstance(fault, Mapping) else "Nova says ERROR, and not why"
    return "" if status in ("ACTIVE", "BUILD") else f"Nova says {status}"


def _addresses(server: Mapping[str, Any]) -> tuple[str, ...]:
    networks = server.get("addresses") or {}
    return tuple(str(one["addr"]) for entries in networks.values() for one in entries if "addr" in one)


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except ValueError:
        return None
