"""One project: its servers, and what the API refuses."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

from clouds.servers.hetzner_fake import data
from clouds.servers.hetzner_fake.selectors import SelectorError, matches

__all__ = ["Json", "Project", "RefusedError"]

Json = dict[str, Any]
_WORD: Final = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*")
_VALUE: Final = re.compile(r"|[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?")
_USER_DATA: Final = 32 * 1024  # bytes


class RefusedError(Exception):
    """An answer that says no."""

    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field


class Project:
    """The state. Every method may be called by several threads."""

    def __init__(self, *, boot_time: float = 0.05, delete_time: float = 0.0, list_lag: float = 0.0) -> None:
        self.boot_time = boot_time  # seconds until a server is running
        self.delete_time = delete_time  # for which a deleted server is still shown
        self.list_lag = list_lag  # until a new server is in lists
        self.limit: int | None = None  # servers that the project may have
        self.sold_out: set[str] = set()  # server types
        self.ever: list[str] = []  # the names of all servers that were ever made
        self._lock = threading.RLock()
        self._numbers = itertools.count(42_000_000, 7)
        self._servers: dict[int, Json] = {}
        self._made: dict[int, float] = {}  # when, by the monotonic clock
        self._ends: dict[int, float] = {}  # when one that was deleted is gone
        self._own_status: dict[int, str] = {}  # in the place of what time makes of it
        self._actions: list[tuple[Json, float]] = []  # each with when it ends
        self.primary_ips: dict[int, Json] = {}

    # -- what there is -------------------------------------------------------------------------------------------------

    def alive(self) -> list[str]:
        """The names of the servers that are there and not being deleted."""
        with self._lock:
            return [server["name"] for server in self._present() if server["id"] not in self._ends]

    def servers(self, query: Mapping[str, list[str]]) -> list[Json]:
        """A list as it was asked for, all pages."""
        now = time.monotonic()
        with self._lock:
            found = [self._shown(one) for one in self._present() if now - self._made[one["id"]] >= self.list_lag]
        found = [one for one in found if _is_asked_for(one, query)]
        for order in reversed(query.get("sort", ["id"])):
            key, _, direction = order.partition(":")
            found.sort(key=itemgetter(key), reverse=direction == "desc")
        return found

    def actions(self) -> list[Json]:
        """All that was ever done, or is; what was done to a server that was made ends when it runs."""
        now = time.monotonic()
        done = {"status": "success", "progress": 100, "finished": _now()}
        with self._lock:
            return [action | (done if now >= end else {}) for action, end in self._actions]

    # -- changes -------------------------------------------------------------------------------------------------------

    def create(self, body: Json) -> Json:
        """Makes a server; raises RefusedError."""
        with self._lock:
            parts = _checked(body)
            if any(server["name"] == body["name"] for server in self._present()):
                raise RefusedError(409, "uniqueness_error", "server name is already used", "name")
            if self.limit is not None and len(self._servers) >= self.limit:
                raise RefusedError(403, "resource_limit_exceeded", "server limit exceeded")
            if parts["server_type"]["name"] in self.sold_out:
                raise RefusedError(412, "resource_unavailable", "error during placement")
            server = self._new(body, parts)
            starts: list[Json] = []
            if body.get("start_after_create", True):
                starts.append(self._act("start_server", server["id"], self.boot_time))
            else:
                self._own_status[server["id"]] = "off"
            return {
                "server": self._shown(server),
                "action": self._act("create_server", server["id"], self.boot_time / 2),
                "next_actions": starts,
                "root_password": None if body.get("ssh_keys") else "YItygq1v3GYjjMomLaKc",
            }

    def delete(self, number: int) -> Json:
        """Deletes a server, with the addresses that were made for it."""
        with self._lock:
            server = self._there(number)
            if server["protection"]["delete"]:
                raise RefusedError(423, "protected", "server deletion is protected")
            if server["locked"]:
                raise RefusedError(423, "locked", "server is locked")
            self._ends[number] = time.monotonic() + self.delete_time
            self.primary_ips = {
                key: ip for key, ip in self.primary_ips.items() if ip["assignee_id"] != number or not ip["auto_delete"]
            }
            self._present()
            return {"action": self._act("delete_server", number, self.delete_time)}

    def update(self, number: int, body: Json) -> Json:
        """Gives a server another name, or other labels."""
        with self._lock:
            server = self._there(number)
            if "name" in body and any(o["name"] == body["name"] and o["id"] != number for o in self._present()):
                raise RefusedError(409, "uniqueness_error", "server name is already used", "name")
            _check_labels(body.get("labels", {}))
            server.update({key: value for key, value in body.items() if key in ("name", "labels")})
            return {"server": self._shown(server)}

    def act(self, number: int, command: str, body: Json) -> Json:
        """An action on a server: its protection, or its power."""
        with self._lock:
            server = self._there(number)
            if command == "change_protection":
                server["protection"] = {"delete": bool(body.get("delete")), "rebuild": bool(body.get("rebuild"))}
            elif command == "poweroff":
                self._own_status[number] = "off"
            else:
                raise RefusedError(404, "not_found", f"there is no action {command}")
            return {"action": self._act(command, number, 0.0)}

    def set(self, name: str, **values: object) -> None:
        """Changes a server behind the API's back: ``status``, ``locked``, ``created``, whatever it shows."""
        with self._lock:
            server = next(one for one in self._present() if one["name"] == name)
            if "status" in values:
                self._own_status[server["id"]] = str(values.pop("status"))
            server.update(values)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _present(self) -> list[Json]:
        for number in [number for number, end in self._ends.items() if time.monotonic() >= end]:
            del self._servers[number], self._made[number], self._ends[number]
            self._own_status.pop(number, None)
        return list(self._servers.values())

    def _there(self, number: int) -> Json:
        self._present()
        if number not in self._servers or number in self._ends:
            raise RefusedError(404, "not_found", f"server with ID '{number}' not found")
        return self._servers[number]

    def _shown(self, server: Json) -> Json:
        number = server["id"]
        age = time.monotonic() - self._made[number]
        status = "initializing" if age < self.boot_time / 2 else "starting" if age < self.boot_time else "running"
        status = "deleting" if number in self._ends else self._own_status.get(number, status)
        return {**server, "status": status}

    def _new(self, body: Json, parts: Json) -> Json:
        number = next(self._numbers)
        server = _server(number, body, parts)
        self._servers[number] = server
        self._made[number] = time.monotonic()
        self.ever.append(server["name"])
        for family in ("ipv4", "ipv6"):
            if server["public_net"][family] is not None:
                key = server["public_net"][family]["id"]
                self.primary_ips[key] = {"id": key, "type": family, "auto_delete": True, "assignee_id": number}
        return server

    def _act(self, command: str, server: int, seconds: float) -> Json:
        action = {
            "id": next(self._numbers),
            "command": command,
            "status": "running",
            "progress": 0,
            "started": _now(),
            "finished": None,
            "resources": [{"id": server, "type": "server"}],
            "error": None,
        }
        self._actions.append((action, time.monotonic() + seconds))
        return action


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_asked_for(server: Json, query: Mapping[str, list[str]]) -> bool:
    try:
        return (
            server["name"] in query.get("name", [server["name"]])
            and server["status"] in query.get("status", [server["status"]])
            and all(matches(selector, server["labels"]) for selector in query.get("label_selector", []))
        )
    except SelectorError as error:
        raise RefusedError(422, "invalid_input", f"invalid label selector: {error}", "label_selector") from None


# -- what is refused ---------------------------------------------------------------------------------------------------


def _checked(body: Json) -> Json:
    for key in ("name", "server_type", "image"):
        if not body.get(key):
            raise RefusedError(422, "invalid_input", f"invalid input in field '{key}'", key)
    if not _NAME.fullmatch(str(body["name"])):
        raise RefusedError(422, "invalid_input", "invalid input in field 'name'", "name")
    if len(str(body.get("user_data", "")).encode()) > _USER_DATA:
        raise RefusedError(422, "invalid_input", "user_data must be at most 32 KiB", "user_data")
    _check_labels(body.get("labels", {}))
    parts: Json = {
        "server_type": _one(data.SERVER_TYPES, body["server_type"], "server_type"),
        "image": _one(data.IMAGES, body["image"], "image"),
        "location": _one(data.LOCATIONS, body.get("location", "fsn1"), "location"),
        "placement_group": None,
    }
    if "placement_group" in body:
        parts["placement_group"] = _one(data.PLACEMENT_GROUPS, body["placement_group"], "placement_group")
    places = [place for place in parts["server_type"]["locations"] if place["name"] == parts["location"]["name"]]
    if not places or places[0]["deprecation"] is not None:
        raise RefusedError(422, "invalid_input", "unsupported location for server type", "location")
    if parts["image"]["architecture"] != parts["server_type"]["architecture"]:
        raise RefusedError(422, "invalid_input", "image is not compatible with the server type", "image")
    return parts | _checked_attachments(body)


def _checked_attachments(body: Json) -> Json:
    public = {"enable_ipv4": True, "enable_ipv6": True, **body.get("public_net", {})}
    return {
        "networks": [_one(data.NETWORKS, number, "networks") for number in body.get("networks", [])],
        "firewalls": [_one(data.FIREWALLS, one["firewall"], "firewalls") for one in body.get("firewalls", [])],
        "ssh_keys": [_one(data.SSH_KEYS, one, "ssh_keys") for one in body.get("ssh_keys", [])],
        "families": [family for family in ("ipv4", "ipv6") if public[f"enable_{family}"]],
    }


def _one(known: list[Json], wanted: object, field: str) -> Json:
    found = next((one for one in known if wanted in (one["id"], str(one["id"]), one["name"])), None)
    if found is None:
        raise RefusedError(404, "not_found", f"{field.removesuffix('s')} not found", field)
    return found


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not _VALUE.fullmatch(value) or not _VALUE.fullmatch(key.rpartition("/")[2]) or not key:
            raise RefusedError(422, "invalid_input", "invalid input in field 'labels'", "labels")


def _server(number: int, body: Json, parts: Json) -> Json:
    low, high = number % 250 + 1, number // 250 % 250 + 1
    ipv4 = {"id": number + 1, "ip": f"192.0.{high}.{low}", "blocked": False, "dns_ptr": f"static.{number}.example"}
    ipv6 = {
        "id": number + 2,
        "ip": f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::/64",
        "blocked": False,
        "dns_ptr": [],
    }
    return {
        "id": number,
        "name": body["name"],
        "status": "initializing",
        "created": _now(),
        "public_net": {
            "ipv4": ipv4 if "ipv4" in parts["families"] else None,
            "ipv6": ipv6 if "ipv6" in parts["families"] else None,
            "floating_ips": [],
            "firewalls": [{"id": firewall["id"], "status": "applied"} for firewall in parts["firewalls"]],
        },
        "private_net": [
            {"network": net["id"], "ip": f"10.0.{high}.{low}", "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"}
            for net in parts["networks"]
        ],
        **{key: parts[key] for key in ("server_type", "image", "location", "placement_group")},
        "iso": None,
        "rescue_enabled": False,
        "locked": False,
        "backup_window": None,
        "outgoing_traffic": None,
        "ingoing_traffic": None,
        "included_traffic": 20 << 40,
        "primary_disk_size": parts["server_type"]["disk"],
        "protection": {"delete": False, "rebuild": False},
        "labels": dict(body.get("labels", {})),
        "volumes": [],
        "load_balancers": [],
    }
