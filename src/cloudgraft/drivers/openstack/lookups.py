"""Looks up flavours, images, networks and server groups by name, since Nova requires ids."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from cloudgraft.drivers.openstack.servers import Found
from cloudgraft.drivers.openstack.session import Call
from cloudgraft.drivers.openstack.settings import AUTO, NONE, MachineSettings
from cloudgraft.sdk.driver import Shape
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.sdk.quantity import Quantity

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
