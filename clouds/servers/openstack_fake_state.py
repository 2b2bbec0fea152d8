"""What is in the fake OpenStack's one project, and the rules by which it changes."""

from __future__ import annotations

import base64
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["GROUP", "IMAGE", "NETWORK", "Answer", "Flavor", "Project", "Server", "refusal"]

IMAGE: Final = "6f0f2c0e-6e57-4b62-a4f6-8a4a37f3a001"
NETWORK: Final = "6f0f2c0e-6e57-4b62-a4f6-8a4a37f3a002"
GROUP: Final = "6f0f2c0e-6e57-4b62-a4f6-8a4a37f3a003"
_METADATA_KEY: Final = re.compile(r"[a-zA-Z0-9-_:. ]{1,255}")
_ENOUGH: Final = 65535


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a service."""

    status: int
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def refusal(status: int, key: str, message: str) -> Answer:
    """In the form of Nova's."""
    return Answer(status, {key: {"code": status, "message": message}})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """What one kind of server has."""

    id: str
    name: str
    vcpus: int = 1
    ram: int = 512
    disk: int = 1
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Server:
    """One server, with the order that it was made by."""

    id: str
    order: Mapping[str, Any]
    name: str
    metadata: dict[str, str]
    since: float
    created: str
    status: str = "BUILD"
    fault: str = ""
    task: str | None = None


@dataclass(slots=True, kw_only=True)
class Project:
    """Servers, flavours, images, networks and limits."""

    flavors: Sequence[Flavor] = (
        Flavor(id="1", name="m1.tiny"),
        Flavor(id="2", name="m1.small", vcpus=2, ram=2048, disk=20),
        Flavor(id="3", name="m1.huge", vcpus=512, ram=1 << 22, disk=20),
        Flavor(id="4", name="g1.gpu", vcpus=8, ram=32768, disk=0, extra_specs={"pci_passthrough:alias": "a100:2"}),
    )
    images: Mapping[str, str] = field(default_factory=lambda: {IMAGE: "cirros"})
    networks: Mapping[str, str] = field(default_factory=lambda: {NETWORK: "inside"})
    groups: Mapping[str, str] = field(default_factory=lambda: {GROUP: "apart"})
    quota: int = 1000
    page: int = 1000  # Nova's max_limit
    largest: int = 64  # vcpus that a host has
    boot_time: float = 0.02  # seconds
    is_cell_down: bool = False
    is_short: bool = False  # the first page of servers lacks one, and names no next page, as while servers are built
    repeats: int = 0  # so many pages come once more, as while a server is moved to its cell
    is_slow_to_delete: bool = False  # what is deleted stays, and looks as it did
    servers: dict[str, Server] = field(default_factory=dict)

    # -- servers -------------------------------------------------------------------------------------------------------

    def create_server(self, body: Mapping[str, Any]) -> Answer:
        """Accepts first; a flavour that no host can hold becomes an error later."""
        order = body["server"]
        wrong = self._wrong(order, body.get("os:scheduler_hints", {}))
        if wrong is not None:
            return wrong
        if len(self.servers) >= self.quota:
            used = f"Requested 1, but already used {len(self.servers)} of {self.quota} instances"
            return refusal(403, "forbidden", f"Quota exceeded for instances: {used}")
        server = Server(
            id=str(uuid.uuid4()),
            order=body,
            name=order["name"],
            metadata=dict(order.get("metadata", {})),
            since=time.monotonic(),
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        flavor = next(flavor for flavor in self.flavors if flavor.id == order["flavorRef"])
        if flavor.vcpus > self.largest:
            server.status, server.fault = "ERROR", "No valid host was found. There are not enough hosts available."
        self.servers[server.id] = server
        return Answer(202, {"server": {"id": server.id, "links": [], "adminPass": "an-admin-password"}})

    def _wrong(self, order: Mapping[str, Any], hints: Mapping[str, Any]) -> Answer | None:
        data = order.get("user_data", "")
        base64.b64decode(data, validate=True)
        disks = order.get("block_device_mapping_v2", ())
        image = order.get("imageRef") or (disks[0]["uuid"] if disks else "")
        networks = order["networks"]  # must be there from 2.37 on
        asked = [network["uuid"] for network in networks] if isinstance(networks, list) else []
        strange = [network for network in asked if network not in self.networks]
        marks = order.get("metadata", {})
        refused = {
            "Invalid input for field/attribute metadata.": any(
                not _METADATA_KEY.fullmatch(key) or len(value) > 255 for key, value in marks.items()
            ),
            f"Invalid input for field/attribute user_data. Value: {data[:50]}...": len(data) > _ENOUGH,
            f"Can not find requested image {image}": image not in self.images,
            f"Flavor {order['flavorRef']} could not be found.": order["flavorRef"]
            not in {one.id for one in self.flavors},
            f"Network {strange} could not be found.": bool(strange),
            "Invalid input: server group could not be found": hints.get("group", GROUP) not in self.groups,
        }
        message = next((message for message, is_so in refused.items() if is_so), "")
        return refusal(400, "badRequest", message) if message else None

    def delete_server(self, server: str) -> Answer:
        """At once, unless it is to stay."""
        if server not in self.servers:
            return refusal(404, "itemNotFound", f"Instance {server} could not be found.")
        if not self.is_slow_to_delete:
            del self.servers[server]
        return Answer(204)

    def mark_server(self, server: str, body: Mapping[str, Any]) -> Answer:
        """Its other metadata stays."""
        if server not in self.servers:
            return refusal(404, "itemNotFound", f"Instance {server} could not be found.")
        self.servers[server].metadata.update(body["metadata"])
        return Answer(200, {"metadata": self.servers[server].metadata})

    def unmark_server(self, server: str, key: str) -> Answer:
        """One item."""
        if server not in self.servers or key not in self.servers[server].metadata:
            return refusal(404, "itemNotFound", "Metadata item was not found")
        del self.servers[server].metadata[key]
        return Answer(204)

    def list_servers(self, params: Mapping[str, str], url: str) -> Answer:
        """One page. Servers of a cell that is down are shown as unknown, or left out where a page was asked for."""
        if self.is_cell_down:
            shown = [] if params else [{"id": one, "status": "UNKNOWN", "links": []} for one in self.servers]
            return Answer(200, {"servers": shown})
        servers = [self._shown(server) for server in reversed(self.servers.values())]
        if self.is_short and not params:
            return Answer(200, {"servers": servers[: self.page - 1]})
        if self.repeats > 0 and "marker" in params:
            self.repeats -= 1
            return Answer(200, {"servers": [one for one in servers if one["id"] == params["marker"]]})
        return self._paged("servers", servers, params, url)

    def _shown(self, server: Server) -> dict[str, Any]:
        if server.status == "BUILD" and time.monotonic() - server.since >= self.boot_time:
            server.status = "ACTIVE"
        shown: dict[str, Any] = {
            "id": server.id,
            "name": server.name,
            "status": server.status,
            "metadata": server.metadata,
            "created": server.created,
            "OS-EXT-STS:task_state": server.task,
            "addresses": {"inside": [{"addr": "10.9.0.7", "version": 4}]} if server.status == "ACTIVE" else {},
        }
        if server.fault:
            shown["fault"] = {"code": 500, "message": server.fault, "created": server.created}
        return shown

    # -- the rest ------------------------------------------------------------------------------------------------------

    def list_flavors(self, params: Mapping[str, str], url: str) -> Answer:
        """One page."""
        flavors = [
            {
                "id": one.id,
                "name": one.name,
                "vcpus": one.vcpus,
                "ram": one.ram,
                "disk": one.disk,
                "OS-FLV-EXT-DATA:ephemeral": 0,
                "extra_specs": dict(one.extra_specs),
            }
            for one in self.flavors
        ]
        return self._paged("flavors", flavors, params, url)

    def list_groups(self) -> Answer:
        """All of them."""
        groups = [{"id": id_, "name": name, "policy": "anti-affinity"} for id_, name in self.groups.items()]
        return Answer(200, {"server_groups": groups})

    def list_images(self, params: Mapping[str, str]) -> Answer:
        """Those with that name."""
        wanted = params["name"].removeprefix("in:").strip('"')
        return Answer(
            200, {"images": [{"id": id_, "name": name} for id_, name in self.images.items() if name == wanted]}
        )

    def list_networks(self, params: Mapping[str, str]) -> Answer:
        """Those with that name."""
        found = [{"id": id_, "name": name} for id_, name in self.networks.items() if name == params["name"]]
        return Answer(200, {"networks": found})

    def _paged(self, key: str, entries: Sequence[Mapping[str, Any]], params: Mapping[str, str], url: str) -> Answer:
        ids = [entry["id"] for entry in entries]
        marker = params.get("marker")
        if marker is not None and marker not in ids:
            return refusal(400, "badRequest", f"marker [{marker}] not found")
        begin = ids.index(marker) + 1 if marker is not None else 0
        page = entries[begin : begin + min(int(params.get("limit", self.page)), self.page)]
        body: dict[str, Any] = {key: page}
        if len(page) == self.page:
            last = page[-1]["id"] if page else ""
            body[f"{key}_links"] = [{"rel": "next", "href": f"{url}/compute/v2.1/{key}?marker={last}"}]
        return Answer(200, body)
