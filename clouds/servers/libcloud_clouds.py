"""The fakes themselves, one class for each cloud; see ``libcloud_fake``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = [
    "PAGE",
    "TOKEN",
    "FakeBrightbox",
    "FakeCloudscale",
    "FakeDigitalOcean",
    "FakeLinode",
    "FakeVultr",
    "last_of",
    "now",
]

TOKEN: Final = "a-token-nobody-knows"
PAGE: Final = 3  # machines


def now() -> str:
    """As most of them write it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"


def last_of(path: str) -> str:
    """The last part of a path: an id."""
    return path.rstrip("/").rpartition("/")[2]


class FakeDigitalOcean(FakeCloud):
    """Droplets and sizes."""

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, {"id": "unauthorized", "message": "Unable to authenticate you."})
        if asked.path == "/v2/sizes":
            sizes = [
                ("s-1vcpu-1gb", 1, 1024, 25, 0.00893),
                ("s-2vcpu-4gb", 2, 4096, 80, 0.03571),
                ("free", 1, 512, 1, 0),
            ]
            keys = ("slug", "vcpus", "memory", "disk", "price_hourly")
            more = {"regions": ["fra1"], "price_monthly": 6, "transfer": 1}
            return Answer(200, {"sizes": [{**dict(zip(keys, size, strict=True)), **more} for size in sizes]})
        if asked.method == "POST":
            return self._create(asked.body)
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(asked.path), None)
            return Answer(204) if gone else Answer(404, {"id": "not_found", "message": "The resource was not found."})
        return self._page(int(asked.query.get("page", 1)))

    def _create(self, order: Mapping[str, Any]) -> Answer:
        if order["size"] not in ("s-1vcpu-1gb", "s-2vcpu-4gb"):
            return Answer(422, {"id": "unprocessable_entity", "message": "You specified an invalid size"})
        number = self.new_id()
        droplet = {
            "id": number,
            "name": order["name"],
            "status": "active",
            "created_at": f"{now()}Z",
            "networks": {"v4": [{"type": "private", "ip_address": "10.0.0.5"}]},
            "tags": order.get("tags", []),
            "size_slug": order["size"],
            "region": {"name": order["region"]},
        }
        self.machines[str(number)] = droplet
        return Answer(202, {"droplet": {**droplet, "status": "new"}})

    def _count(self) -> dict[str, Any]:
        return {"meta": {"total": len(self.machines)}}

    def _page(self, page: int) -> Answer:
        droplets = list(self.machines.values())
        pages = max(1, -(-len(droplets) // PAGE))
        links = {"pages": {"last": f"https://api.digitalocean.com/v2/droplets?page={pages}"}} if pages > 1 else {}
        return Answer(200, {"droplets": droplets[(page - 1) * PAGE : page * PAGE], "links": links, **self._count()})


class FakeLinode(FakeCloud):
    """Linodes and types; labels are unique."""

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """Its label."""
        return str(machine["label"])

    def answer(self, asked: Asked) -> Answer:
        """One page holds three."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, {"errors": [{"reason": "Invalid Token"}]})
        if asked.path == "/v4/linode/types":
            return Answer(200, {"data": [_linode_type("g6-nanode-1"), _linode_type("g6-standard-2")]})
        if asked.method == "POST":
            return self._create(asked.body)
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(asked.path), None)
            return Answer(200, {}) if gone else Answer(404, {"errors": [{"reason": "Not found"}]})
        machines, page = list(self.machines.values()), int(asked.query.get("page", 1))
        return Answer(200, {"data": machines[(page - 1) * PAGE : page * PAGE], "page": page, "results": len(machines)})

    def _create(self, order: Mapping[str, Any]) -> Answer:
        if any(one["label"] == order["label"] for one in self.machines.values()):
            return Answer(400, {"errors": [{"reason": "Label must be unique among your linodes", "field": "label"}]})
        if any(not 3 <= len(tag) <= 50 for tag in order["tags"]):
            return Answer(400, {"errors": [{"reason": "Length must be 3-50 characters", "field": "tags"}]})
        if order["type"] != "g6-nanode-1":
            return Answer(400, {"errors": [{"reason": "A valid plan type by that ID was not found", "field": "type"}]})
        number = self.new_id()
        machine = {
            "id": number,
            "label": order["label"],
            "status": "running",
            "created": now(),
            "type": order["type"],
        }
        machine |= {"tags": order["tags"], "region": order["region"], "image": order["image"], "ipv4": ["192.168.1.9"]}
        unused: dict[str, Any] = dict.fromkeys(("ipv6", "hypervisor", "specs", "alerts", "backups", "watchdog_enabled"))
        self.machines[str(number)] = {**unused, **machine}
        return Answer(200, {**unused, **machine, "status": "provisioning"})


def _linode_type(name: str) -> dict[str, Any]:
    unused: dict[str, Any] = dict.fromkeys(("class", "addons", "successor", "transfer", "gpus", "network_out"))
    price = {"hourly": 0.0075, "monthly": 5}
    return {**unused, "id": name, "label": name, "memory": 1024, "disk": 25600, "vcpus": 1, "price": price}


class FakeCloudscale(FakeCloud):
    """Servers and flavours."""

    def answer(self, asked: Asked) -> Answer:
        """Everything on one page."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, {"detail": "Invalid token."})
        flavor = {"slug": "flex-4-1", "name": "Flex-4-1", "vcpu_count": 1, "memory_gb": 4}
        if asked.path == "/v1/flavors":
            return Answer(200, [flavor])
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(asked.path), None)
            return Answer(204) if gone else Answer(404, {"detail": "Not found."})
        if asked.method == "GET":
            return Answer(200, list(self.machines.values()))
        order = asked.body
        if order["flavor"] != flavor["slug"]:
            return Answer(400, {"flavor": ["Object with slug does not exist."]})
        number = f"47cec963-{self.new_id():04d}"
        image = {"slug": order["image"], "name": order["image"], "operating_system": "Debian"}
        machine = {"uuid": number, "name": order["name"], "status": "running", "tags": order["tags"], "flavor": flavor}
        machine |= {"created_at": f"{now()}Z", "image": image, "zone": {"slug": order.get("zone")}}
        machine["interfaces"] = [{"type": "public", "addresses": [{"address": "5.102.1.1"}]}]
        self.machines[number] = machine
        return Answer(201, {**machine, "status": "changing"})


class FakeVultr(FakeCloud):
    """Instances and plans."""

    def name_of(self, machine: Mapping[str, Any]) -> str:
        """Its label."""
        return str(machine["label"])

    def answer(self, asked: Asked) -> Answer:
        """One page holds three; the next one is named by a cursor."""
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return Answer(401, {"error": "Invalid API token.", "status": 401})
        if asked.path == "/v2/plans":
            plan = {
                "id": "vc2-1c-1gb",
                "ram": 1024,
                "disk": 25,
                "bandwidth": 1,
                "monthly_cost": 5,
                "locations": ["ams"],
            }
            none = {"meta": {"links": {"next": ""}}}
            return Answer(200, {"plans": [{**plan, "type": "vc2", "disk_count": 1, "vcpu_count": 1}], **none})
        if asked.method == "POST":
            return self._create(asked.body)
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(asked.path), None)
            return Answer(204) if gone else Answer(404, {"error": "Invalid instance ID", "status": 404})
        machines, first = list(self.machines.values()), int(asked.query.get("cursor", 0))
        following = str(first + PAGE) if first + PAGE < len(machines) else ""
        return Answer(200, {"instances": machines[first : first + PAGE], "meta": {"links": {"next": following}}})

    def _create(self, order: Mapping[str, Any]) -> Answer:
        if order["plan"] != "vc2-1c-1gb":
            return Answer(400, {"error": "Invalid plan chosen.", "status": 400})
        number = f"cb676a46-{self.new_id():04d}"
        unused = ("netmask_v4", "gateway_v4", "v6_network", "v6_network_size", "app_id", "image_id", "features", "tag")
        more = ("os", "allowed_bandwidth", "server_status", "firewall_group_id", "ram", "disk", "vcpu_count")
        machine: dict[str, Any] = dict.fromkeys((*unused, *more), "")
        machine |= {"id": number, "label": order["label"], "plan": order["plan"], "region": order["region"]}
        machine |= {"os_id": order["os_id"], "date_created": f"{now()}+00:00", "status": "active", "tag": ""}
        machine |= {"main_ip": "0.0.0.0", "v6_main_ip": "", "internal_ip": "", "power_status": "running"}
        self.machines[number] = machine
        return Answer(202, {"instance": {**machine, "status": "pending"}})


class FakeBrightbox(FakeCloud):
    """Servers and server types, behind a login."""

    def answer(self, asked: Asked) -> Answer:
        """Everything on one page."""
        if asked.path == "/token":
            login = f"Basic {base64.b64encode(f'cli-12345:{TOKEN}'.encode()).decode()}"
            is_right = asked.headers.get("authorization") == login
            return Answer(200, {"access_token": "lent"}) if is_right else Answer(401, {"error": "invalid_client"})
        if asked.headers.get("authorization") != "OAuth lent":
            return Answer(401, {"error": "unauthorized_client"})
        kind = {"id": "typ-12345", "name": "Nano", "ram": 512, "disk_size": 20480}
        if asked.path == "/1.0/server_types":
            return Answer(200, [kind])
        if asked.method == "DELETE":
            gone = self.machines.pop(last_of(asked.path), None)
            missing = {"error_name": "missing_resource", "errors": ["Resource not found"]}
            return Answer(202, {}) if gone else Answer(404, missing)
        if asked.method == "GET":
            return Answer(200, list(self.machines.values()))
        order, number = asked.body, f"srv-{self.new_id():05d}"
        image = dict.fromkeys(("id", "name", "ancestor", "arch", "source", "compatibility_mode", "status", "owner"), "")
        machine = {"id": number, "name": order["name"], "status": "active", "server_type": kind, "zone": _ZONE}
        more = ("fqdn", "user_data", "snapshots", "server_groups", "hostname", "started_at", "deleted_at")
        machine |= {**dict.fromkeys(more), "created_at": f"{now()}Z", "cloud_ips": [], "image": {**_IMAGE, **image}}
        machine["interfaces"] = [{"ipv4_address": "10.1.2.3"}]
        self.machines[number] = machine
        return Answer(202, {**machine, "status": "creating"})


_ZONE: Final = {"id": "zon-12345", "handle": "gb1-a"}
_IMAGE: Final[dict[str, Any]] = dict.fromkeys(
    ("source", "arch", "compatibility_mode", "created_at", "description", "disk_size", "min_ram", "official"), ""
)
