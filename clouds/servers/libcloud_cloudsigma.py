"""A fake of CloudSigma's API 2.0; see ``libcloud_fake``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from clouds.servers.libcloud_clouds import TOKEN
from clouds.servers.libcloud_fake import Answer, Asked, FakeCloud

__all__ = ["IMAGE", "USER", "FakeCloudsigma"]

USER: Final = "judge@lab.example"
IMAGE: Final = "6fe24a6b-b5c5-40ba-8860-771044d2500d"
_BASE: Final = "/api/2.0"


class FakeCloudsigma(FakeCloud):
    """Servers and drives. What is begun is done at the next look."""

    def __init__(self) -> None:
        """One image, of 10 GiB."""
        super().__init__()
        self.drives: dict[str, dict[str, Any]] = {}
        self.is_cloning = False  # whether clones never end
        self.drops_meta = False  # whether clones have the meta of their image
        self.most = 0  # things in an answer, whatever is asked for; 0: all

    def answer(self, asked: Asked) -> Answer:
        """What the API answers."""
        login = f"Basic {base64.b64encode(f'{USER}:{TOKEN}'.encode()).decode()}"
        if asked.headers.get("authorization") != login:
            return _error(401, "permission", "Authentication failed")
        kind, *rest = asked.path.removeprefix(_BASE).strip("/").split("/")
        things = self.machines if kind == "servers" else self.drives
        if not rest and asked.method == "POST":
            return self._make(asked.body)
        if rest in ([], ["detail"]):
            return self._page(asked, list(things.values()))
        return self._act(rest[0], asked) if rest[1:] == ["action"] else self._one(things, rest[0], asked)

    def _one(self, things: dict[str, dict[str, Any]], uuid: str, asked: Asked) -> Answer:
        if uuid not in things:
            return _error(404, "notexist", f"Object with uuid {uuid} does not exist")
        if asked.method == "DELETE":
            return self._delete(uuid, asked.query.get("recurse", ""))
        if asked.method == "PUT":
            things[uuid] |= asked.body
        self._settle(things[uuid])
        return Answer(200, things[uuid])

    def _settle(self, thing: dict[str, Any]) -> None:
        after = {"starting": "running", "stopping": "stopped", "cloning_dst": "unmounted"}
        if not (self.is_cloning and thing["status"] == "cloning_dst"):
            thing["status"] = after.get(thing["status"], thing["status"])

    def _page(self, asked: Asked, found: list[dict[str, Any]]) -> Answer:
        if "name" in asked.query:
            found = [one for one in found if one["name"] == asked.query["name"]]
        for one in found:
            self._settle(one)
        offset, limit = int(asked.query.get("offset", 0)), int(asked.query.get("limit", 20))
        limit = limit or self.most or len(found)
        meta = {"limit": limit, "offset": offset, "total_count": len(found)}
        return Answer(200, {"meta": meta, "objects": found[offset : offset + limit]})

    def _act(self, uuid: str, asked: Asked) -> Answer:
        action = asked.query["do"]
        if action == "clone":
            return self._clone(uuid, asked.body)
        server = self.machines.get(uuid)
        if server is None:
            return _error(404, "notexist", f"Object with uuid {uuid} does not exist")
        needed, becomes = {"start": ("stopped", "starting"), "stop": ("running", "stopping")}[action]
        if server["status"] != needed:
            return _error(400, "validation", f'Cannot {action} guest in state "{server["status"]}"')
        server["status"] = becomes
        return Answer(202, {"action": action, "result": "success", "uuid": uuid})

    def _clone(self, image: str, order: Mapping[str, Any]) -> Answer:
        if image != IMAGE:
            return _error(404, "notexist", f"Object with uuid {image} does not exist")
        if order["size"] < 10 * 1024**3:
            return _error(400, "validation", "Cannot clone to a smaller drive")
        uuid = f"d0000000-{self.new_id()}"
        meta = {} if self.drops_meta else order.get("meta", {})
        self.drives[uuid] = {
            "uuid": uuid,
            "name": order["name"],
            "size": order["size"],
            "media": "disk",
            "status": "cloning_dst",
            "meta": {"os": "linux", **meta},
            "mounted_on": [],
        }
        return Answer(202, {"objects": [self.drives[uuid]]})

    def _make(self, order: dict[str, Any]) -> Answer:
        if any(len(key) > 32 for key in order["meta"]):
            return _error(400, "validation", "A key of meta has more than 32 characters")
        uuid = f"50000000-{self.new_id()}"
        for one in order["drives"]:
            drive = self.drives[one["drive"]]
            if drive["status"] != "unmounted":
                return _error(400, "validation", f"The drive is {drive['status']}")
            drive |= {"status": "mounted", "mounted_on": [{"uuid": uuid}]}
        addresses = {"ip_v4": {"uuid": "94.26.101.149"}, "ip_v6": None}
        self.machines[uuid] = {
            **order,
            "uuid": uuid,
            "status": "stopped",
            "drives": [{**one, "drive": {"uuid": one["drive"]}} for one in order["drives"]],
            "nics": [{**nic, "runtime": addresses if "ip_v4_conf" in nic else None} for nic in order["nics"]],
        }
        return Answer(201, {"objects": [self.machines[uuid]]})

    def _delete(self, uuid: str, recurse: str) -> Answer:
        if self.drives.pop(uuid, None) is not None:
            return Answer(204)
        if self.machines[uuid]["status"] != "stopped":
            return _error(400, "validation", 'Cannot delete guest in state "running"')
        for one in self.machines.pop(uuid)["drives"]:
            self.drives[one["drive"]["uuid"]] |= {"status": "unmounted", "mounted_on": []}
            if recurse == "all_drives":
                del self.drives[one["drive"]["uuid"]]
        return Answer(204)


def _error(status: int, kind: str, message: str) -> Answer:
    return Answer(status, [{"error_type": kind, "error_message": message, "error_point": None}])
