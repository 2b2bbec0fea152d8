"""Looks up ids by name, reads Nova's lists, and converts between its JSON and ours."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from cloudgraft.drivers.openstack.errors import failure_of
from cloudgraft.drivers.openstack.options import AUTO, NONE, USER_DATA_LIMIT, MachineSettings, check_metadata
from cloudgraft.drivers.openstack.session import Call
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState, Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.sdk.quantity import Quantity

# -- machines ----------------------------------------------------------------------------------------------------------

_LONGEST_NAME: Final = 255
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


class Ids(NamedTuple):
    """The ids that a request needs in place of names."""

    flavor: str
    image: str
    networks: str | list[dict[str, str]]  # as Nova takes them
    group: str  # empty: none


def machine_of(server: Mapping[str, Any], region: str) -> Machine | None:
    """Converts an entry of a list to a machine; None when it is deleted and only still shown.

    For a server in a cell that is down, Nova returns only the id. Then the list is incomplete.
    """
    if "name" not in server:
        raise UnavailableError(f"a cell of Nova is down: of {server.get('id')} it shows only the id")
    status, task = str(server.get("status", "")), server.get("OS-EXT-STS:task_state")
    if status in _GONE:
        return None
    state = MachineState.DELETING if task in _DELETING else _STATES.get(status, MachineState.PENDING)
    reason = _reason(server, status) if state is not MachineState.DELETING else ""
    networks = server.get("addresses") or {}
    return Machine(
        name=str(server["name"]),
        machine_id=str(server["id"]),
        provider_id=provider_id(str(server["id"]), region),
        state=state,
        tags={str(key): str(value) for key, value in server.get("metadata", {}).items()},
        created_at=_time(server.get("created")),
        reason=reason,
        addresses=tuple(str(one["addr"]) for entries in networks.values() for one in entries if "addr" in one),
        failure=failure_of(reason) if state is MachineState.FAILED else "",
    )


def provider_id(server: str, region: str) -> str:
    """Returns the providerID that OpenStack's cloud controller writes; it has a region if configured so."""
    return f"openstack://{region}/{server}"


def _reason(server: Mapping[str, Any], status: str) -> str:
    fault = server.get("fault")
    if status == "ERROR":
        return str(fault.get("message", "")) if isinstance(fault, Mapping) else "Nova reports ERROR without a reason"
    return "" if status in ("ACTIVE", "BUILD") else f"Nova reports {status}"


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except ValueError:
        return None


# -- requests ----------------------------------------------------------------------------------------------------------


def order_of(spec: MachineSpec, settings: MachineSettings, ids: Ids) -> dict[str, Any]:
    """Builds the request for one server; raises InvalidArgumentError for values that Nova would refuse."""
    if not 0 < len(spec.name) <= _LONGEST_NAME:
        raise InvalidArgumentError(f"a name has 1 to {_LONGEST_NAME} characters; this one has {len(spec.name)}")
    flaws = Flaws()
    check_metadata(flaws, "the marks", spec.tags)
    flaws.raise_any()
    data = spec.user_data.encode()
    if len(data) > USER_DATA_LIMIT:
        raise InvalidArgumentError(f"user data has {len(data)} bytes; Nova takes {USER_DATA_LIMIT} at most")
    optional = {
        "user_data": base64.b64encode(data).decode(),
        "key_name": settings.key_pair,
        "availability_zone": settings.zone,
        "security_groups": [{"name": name} for name in settings.security_groups],
        "config_drive": settings.config_drive,
    }
    server = {
        "name": spec.name,
        "flavorRef": ids.flavor,
        "metadata": {**settings.metadata, **spec.tags},
        "networks": ids.networks,
        **{key: value for key, value in optional.items() if value},
        **_boot(settings, ids.image),
    }
    return {"server": server, **({"os:scheduler_hints": {"group": ids.group}} if ids.group else {})}


def _boot(settings: MachineSettings, image: str) -> dict[str, Any]:
    """Lets Nova create the boot volume, and delete it with the server: there is no second step that could get lost."""
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


# -- lookups -----------------------------------------------------------------------------------------------------------

_LASTS: Final = 60.0  # seconds for which an id is cached; an image may be replaced by another with the same name


class Lookups:
    """Looks up ids by name, and caches them for a minute: a hundred servers of one group need one request.

    Thread-safe: each access to the cache is one operation of a dictionary.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, float]] = {}

    def find(self, call: Call, settings: MachineSettings) -> Ids:
        """Returns all ids that a request needs; raises InvalidArgumentError that names the key of a missing one."""
        networks: str | list[dict[str, str]] = settings.networks[0] if settings.networks else AUTO
        if networks not in (AUTO, NONE):
            networks = [{"uuid": self._id(call, "machine.networks", name, _network)} for name in settings.networks]
        group = settings.server_group
        return Ids(
            flavor=self._id(call, "machine.shape", settings.shape, _flavor),
            image=self._id(call, "machine.image", settings.image, _image),
            networks=networks,
            group=self._id(call, "machine.serverGroup", group, _group) if group else "",
        )

    def forget(self) -> None:
        """Clears the cache: the cloud refused an id, and the next request looks it up again."""
        self._known.clear()

    def _id(self, call: Call, key: str, name: str, search: Callable[[Call, str], Sequence[str]]) -> str:
        if _is_id(name):
            return name  # the request itself shows whether it exists
        now = time.monotonic()
        found, until = self._known.get((key, name), ("", 0.0))
        if now < until:
            return found
        ids = search(call, name)
        if not ids:
            raise InvalidArgumentError(f"{key}: this project can see no {name!r}; check the name")
        if len(ids) > 1:
            raise InvalidArgumentError(f"{key}: {len(ids)} are named {name!r}; write the id of the one that you mean")
        self._known[key, name] = (ids[0], now + _LASTS)
        return ids[0]


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
    # Glance parses `name=a,b` after `in:` as two names, and a bare `gt:` as a comparison: quotes make it one name.
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    answer = call.get("image", "/images", f"find the image {name!r}", name=f'in:"{escaped}"', status="active")
    return [str(one["id"]) for one in answer.get("images", ())]


def _network(call: Call, name: str) -> list[str]:
    answer = call.get("network", "/networks", f"find the network {name!r}", name=name)
    return [str(one["id"]) for one in answer.get("networks", ())]


def _group(call: Call, name: str) -> list[str]:
    answer = call.get("compute", "/os-server-groups", f"find the server group {name!r}")
    return [str(one["id"]) for one in answer.get("server_groups", ()) if one.get("name") == name]


# -- lists and flavours ------------------------------------------------------------------------------------------------

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MOST_IN_VAIN: Final = 5  # consecutive pages without a new entry


def flavors(call: Call) -> list[dict[str, Any]]:
    """Returns all flavours that the project may use."""
    return pages(call, "/flavors/detail", "flavors", "list the flavours")


def pages(call: Call, path: str, key: str, what: str, *, is_changing: bool = False) -> list[dict[str, Any]]:
    """Returns all entries of a list; the id of a page's last entry leads to the next page.

    ``is_changing``: Nova builds a page of servers from two tables, and a server may move from the first to the second
    meanwhile. Then a page is too short, and Nova takes it for the last one; or it repeats entries. So read until a page
    is empty. A repeated entry is in the result twice, the newer one later.
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
            raise InternalError(f"{what}: the response has no {key}")
        has_next = any(link.get("rel") == "next" for link in answer.get(f"{key}_links", ()))
        ids = [str(entry["id"]) for entry in page]
        entries += page
        budget.check_count(len(entries))
        if not has_next and not (is_changing and page):
            return entries
        in_vain = 0 if set(ids) - seen else in_vain + 1
        seen.update(ids)
        params = {"marker": ids[-1]} if ids else params
    raise InternalError(f"{what}: the pages promise more entries, but have no new ones")


def shape_of(flavor: Mapping[str, Any], gpus: Mapping[str, str], region: str) -> Shape:
    """Converts a flavour to a shape. Only the root disk counts: pods do not use the ephemeral disk."""
    capacity = {"cpu": Quantity(int(flavor["vcpus"])), "memory": Quantity(f"{int(flavor['ram'])}Mi")}
    if disk := int(flavor.get("disk") or 0):
        capacity["ephemeral-storage"] = Quantity(f"{disk}Gi")
    for resource, count in _devices(flavor.get("extra_specs") or {}, gpus):
        capacity[resource] = capacity.get(resource, Quantity(0)) + count
    name = str(flavor["name"])
    labels = {"node.kubernetes.io/instance-type": name if _LABEL.fullmatch(name) else str(flavor["id"])}
    if _LABEL.fullmatch(region):
        labels["topology.kubernetes.io/region"] = region
    return Shape(name=name, capacity=capacity, labels=labels)


def _devices(specs: Mapping[str, str], gpus: Mapping[str, str]) -> list[tuple[str, int]]:
    """Reads extra specs such as `pci_passthrough:alias` = `a100:2,nic:1` and `resources:VGPU` = `1`."""
    given = dict(part.strip().partition(":")[::2] for part in specs.get("pci_passthrough:alias", "").split(","))
    given["VGPU"] = specs.get("resources:VGPU", "")
    return [(gpus[alias], int(count)) for alias, count in given.items() if alias in gpus and count.strip().isdigit()]
