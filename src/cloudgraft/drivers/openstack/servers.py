"""Looks up ids by name, reads lists page by page, and converts Nova's servers, flavours and requests."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from cloudgraft.drivers.openstack.errors import failure_of
from cloudgraft.drivers.openstack.options import USER_DATA_LIMIT
from cloudgraft.drivers.openstack.session import Call
from cloudgraft.drivers.openstack.settings import AUTO, NONE, MachineSettings, check_metadata
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.sdk.quantity import Quantity

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


# -- lookups and lists -------------------------------------------------------------------------------------------------


_LASTS: Final = 60.0  # seconds for which an id is believed; an image may be replaced by another of its name
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_REGION: Final = "topology.kubernetes.io/region"
_MOST_IN_VAIN: Final = 5  # pages one after another with nothing new on them


class Lookups:
    """Ids by name, kept for a minute, so that a hundred servers of one group ask once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[str, float]] = {}

    def find(self, call: Call, settings: MachineSettings) -> Found:
        """All ids that an order needs; raises InvalidArgumentError with the key of what is not there."""
        is_word = list(settings.networks) in ([AUTO], [NONE])
        group = settings.server_group
        return {
            "flavor": self._id(call, "machine.shape", settings.shape, _flavor),
            "image": self._id(call, "machine.image", settings.image, _image),
            "networks": list(settings.networks)
            if is_word
            else [self._id(call, "machine.networks", name, _network) for name in settings.networks],
            "group": self._id(call, "machine.serverGroup", group, _group) if group else "",
        }

    def forget(self) -> None:
        """After the cloud did not know an id: the next order asks anew."""
        with self._lock:
            self._known.clear()

    def _id(self, call: Call, key: str, name: str, ask: Callable[[Call, str], Sequence[str]]) -> str:
        if _is_id(name):
            return name  # whether it is there is said when it is used
        now = time.monotonic()
        with self._lock:
            found, until = self._known.get((key, name), ("", 0.0))
        if now < until:
            return found
        ids = ask(call, name)
        if not ids:
            raise InvalidArgumentError(f"{key}: there is no {name!r} that this project can see")
        if len(ids) > 1:
            raise InvalidArgumentError(f"{key}: {len(ids)} are named {name!r}; write the id of the one that is meant")
        with self._lock:
            self._known[key, name] = (ids[0], now + _LASTS)
        return ids[0]


def flavors(call: Call) -> list[dict[str, Any]]:
    """All flavours that the project may use."""
    return pages(call, "/flavors/detail", "flavors", "list the flavours")


def pages(call: Call, path: str, key: str, what: str, *, is_changing: bool = False) -> list[dict[str, Any]]:
    """All entries of a list of Nova's: pages are as long as the cloud makes them, and follow the last entry's id.

    ``is_changing``: Nova makes a page of servers from two tables, and one may move from the first to the second in the
    meantime. Then a page comes out too short, which Nova takes for the last; or it has once more what was seen. So ask
    until a page is empty. An entry that comes twice is there twice, the newer one later.
    """
    budget = current_budget()
    entries: list[dict[str, Any]] = []
    seen: set[str] = set()
    params: dict[str, str] = {}
    in_vain = 0
    while in_vain < (_MOST_IN_VAIN if is_changing else 1):
        answer = call.get("compute", path, what, **params)
        page = answer.get(key)
        if not isinstance(page, list):
            raise InternalError(f"{what}: the answer has no {key}")
        has_next = any(link.get("rel") == "next" for link in answer.get(f"{key}_links", ()))
        ids = [str(entry["id"]) for entry in page]
        entries += page
        budget.check_count(len(entries))
        if not has_next and not (is_changing and page):
            return entries
        in_vain = 0 if set(ids) - seen else in_vain + 1
        seen.update(ids)
        params = {"marker": ids[-1]} if ids else params
    raise InternalError(f"{what}: pages promise more, but do not lead to it")


def shape_of(flavor: Mapping[str, Any], gpus: Mapping[str, str], region: str) -> Shape:
    """A flavour as a machine type. The disk is the root disk; the ephemeral one is not where pods are."""
    capacity = {"cpu": Quantity(int(flavor["vcpus"])), "memory": Quantity(f"{int(flavor['ram'])}Mi")}
    if disk := int(flavor.get("disk") or 0):
        capacity["ephemeral-storage"] = Quantity(f"{disk}Gi")
    for resource, count in _devices(flavor.get("extra_specs") or {}, gpus):
        capacity[resource] = capacity.get(resource, Quantity(0)) + count
    name = str(flavor["name"])
    labels = {_INSTANCE_TYPE: name if _LABEL.fullmatch(name) else str(flavor["id"])}
    if _LABEL.fullmatch(region):
        labels[_REGION] = region
    return Shape(name=name, capacity=capacity, labels=labels)


def _devices(specs: Mapping[str, str], gpus: Mapping[str, str]) -> list[tuple[str, int]]:
    """Such as `pci_passthrough:alias` = `a100:2,nic:1`, and `resources:VGPU` = `1`."""
    given = dict(part.strip().partition(":")[::2] for part in specs.get("pci_passthrough:alias", "").split(","))
    given["VGPU"] = specs.get("resources:VGPU", "")
    return [(gpus[alias], int(count)) for alias, count in given.items() if alias in gpus and count.strip().isdigit()]


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False


def _flavor(call: Call, name: str) -> list[str]:
    found = flavors(call)
    named = [str(one["id"]) for one in found if one.get("name") == name]
    return named or [str(one["id"]) for one in found if str(one.get("id")) == name]  # ids may be any text


def _image(call: Call, name: str) -> list[str]:
    answer = call.get("image", "/images", f"find the image {name!r}", name=f"in:{_quoted(name)}", status="active")
    return [str(one["id"]) for one in answer.get("images", ())]


def _network(call: Call, name: str) -> list[str]:
    answer = call.get("network", "/networks", f"find the network {name!r}", name=name)
    return [str(one["id"]) for one in answer.get("networks", ())]


def _group(call: Call, name: str) -> list[str]:
    answer = call.get("compute", "/os-server-groups", f"find the server group {name!r}")
    return [str(one["id"]) for one in answer.get("server_groups", ()) if one.get("name") == name]


def _quoted(name: str) -> str:
    """Glance reads `name=a,b` after `in:` as two names, and a bare `gt:` as a comparison: a quoted one is one name."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
