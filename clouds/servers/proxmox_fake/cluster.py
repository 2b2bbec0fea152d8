"""One cluster: what it has, and what it shows."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from clouds.servers.proxmox_fake import data
from clouds.servers.proxmox_fake.data import Guest
from clouds.servers.proxmox_fake.refusals import RefusedError, no_right
from clouds.servers.proxmox_fake.tasks import Agenda, Tasks

__all__ = ["Cluster", "Json"]

Json = dict[str, Any]


class Cluster:
    """The state. Every request holds ``lock`` while it is worked on."""

    def __init__(
        self,
        *,
        clone_time: float = 0.02,
        task_time: float = 0.01,
        news_every: float = 0.03,
    ) -> None:
        self.clone_time = clone_time  # seconds that a linked clone takes; a full one takes twice as long
        self.task_time = task_time  # that any other task takes
        self.news_every = news_every  # after which nodes tell names and states of their machines
        self.nodes = data.nodes()
        self.storages = data.storages()
        self.guests = data.templates()
        self.pools = {"kubernetes"}
        self.denied: set[tuple[str, str]] = set()  # how paths begin, and the right that is missing there
        self.is_pool_only = False  # our rights on machines come from the pool alone, and so with the pool
        self.is_quorate = True
        self.ever: list[str] = []  # the names of all machines that were ever made
        self.lock = threading.RLock()
        self.agenda = Agenda()
        self.tasks = Tasks(self.agenda)
        self._next_news = 0.0

    # -- for judges ----------------------------------------------------------------------------------------------------

    def alive(self) -> list[str]:
        """The names of the machines that there are."""
        with self.lock:
            self.advance()
            return [str(one.config.get("name", "")) for one in self.guests.values() if "template" not in one.config]

    def leftovers(self) -> list[str]:
        """Volumes and files that belong to no machine."""
        with self.lock:
            self.advance()
            used = " ".join(value for guest in self.guests.values() for value in guest.config.values())
            names = {name for storage in self.storages.values() for _, name in (*storage.volumes, *storage.files)}
            return sorted(name for name in names if name not in used)

    def seed(self, name: str) -> bytes:
        """The CD of a machine."""
        with self.lock:
            found = (
                content
                for storage in self.storages.values()
                for (_, file), content in storage.files.items()
                if file == f"{name}.iso"
            )
            return next(found, b"")

    def let_go(self) -> None:
        """Ends what takes for ever: clones of a cluster whose ``clone_time`` is infinite."""
        with self.lock:
            self.clone_time = 0.0
            self.agenda.hurry()

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Lets happen what is due."""
        self.agenda.advance()
        now = time.monotonic()
        if now >= self._next_news:
            self._next_news = now + self.news_every
            for vmid, guest in self.guests.items():
                self._tell(vmid, guest)

    def _tell(self, vmid: int, guest: Guest) -> None:
        if not self.nodes[guest.node].is_online:
            guest.news = None  # in truth after five minutes
            return
        guest.news = {
            "name": guest.config.get("name", f"VM {vmid}"),
            "status": "running" if guest.is_running else "stopped",
            "template": int(guest.config.get("template", 0)),
            "maxcpu": int(guest.config.get("cores", 1)),
            "maxmem": int(guest.config.get("memory", 512)) << 20,
            "mem": int(guest.config.get("memory", 512)) << 19 if guest.is_running else 0,
            "uptime": int(guest.is_running),
        }

    # -- rights --------------------------------------------------------------------------------------------------------

    def may(self, path: str, right: str) -> bool:
        """Whether our user has a right."""
        if any(path.startswith(prefix) and right == name for prefix, name in self.denied):
            return False
        if self.is_pool_only and path.startswith("/vms/"):
            guest = self.guests.get(int(path.removeprefix("/vms/")))
            return guest is not None and (bool(guest.pool) or "template" in guest.config)
        return True

    def rights(self) -> dict[str, Json]:
        """What our user may see, by path; 1 says that it holds below that path too."""
        paths = {"/vms": "/vms/0", **{f"/vms/{vmid}": f"/vms/{vmid}" for vmid in self.guests}}
        paths |= {f"/pool/{pool}": f"/pool/{pool}" for pool in self.pools}
        return {path: {"VM.Audit": 1} if self.may(example, "VM.Audit") else {} for path, example in paths.items()}

    def require(self, path: str, right: str) -> None:
        """Raises RefusedError when our user has not the right."""
        if not self.may(path, right):
            raise no_right(path, right)

    def at(self, node: str) -> None:
        """Raises RefusedError when a node cannot do it, as when a request is handed on to it."""
        if node not in self.nodes:
            raise RefusedError(500, f"hostname lookup '{node}' failed - failed to get address info for: {node}")
        if not self.nodes[node].is_online:
            raise RefusedError(595, "No route to host")

    def guest(self, node: str, vmid: str) -> Guest:
        """A machine on a node; raises RefusedError."""
        self.at(node)
        guest = self.guests.get(int(vmid)) if vmid.isdecimal() else None
        if guest is None or guest.node != node:
            raise RefusedError(500, f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
        return guest

    # -- what it shows -------------------------------------------------------------------------------------------------

    def resources(self, kind: str) -> list[Json]:
        """The list of everything."""
        self.advance()
        found: list[Json] = []
        if kind in ("", "vm"):
            found += [self._shown(vmid, one) for vmid, one in sorted(self.guests.items()) if self._is_seen(vmid)]
        if kind in ("", "node"):
            found += [self._node(name) for name in sorted(self.nodes)]
        if kind in ("", "storage"):
            found += [self._storage(name, node) for name in self.storages for node in self.nodes if self._is_open(name)]
        if kind in ("", "pool"):
            found += [{"id": f"/pool/{pool}", "pool": pool, "type": "pool"} for pool in sorted(self.pools)]
        return found

    def _is_seen(self, vmid: int) -> bool:
        return self.may(f"/vms/{vmid}", "VM.Audit")

    def _is_open(self, storage: str) -> bool:
        return self.may(f"/storage/{storage}", "Datastore.Audit")

    def _shown(self, vmid: int, guest: Guest) -> Json:
        entry: Json = {
            "id": f"{guest.kind}/{vmid}",
            "vmid": vmid,
            "node": guest.node,
            "type": guest.kind,
            "status": "unknown",
        }
        entry |= guest.news or {}
        entry |= {key: guest.config[key] for key in ("lock", "tags") if key in guest.config}
        return entry | ({"pool": guest.pool} if guest.pool else {})

    def _node(self, name: str) -> Json:
        node = self.nodes[name]
        entry: Json = {"id": f"node/{name}", "node": name, "type": "node", "level": ""}
        entry["status"] = "online" if node.is_online else "offline"
        if self.may(f"/nodes/{name}", "Sys.Audit"):
            entry |= {"maxcpu": node.cpus, "maxmem": node.memory, "maxdisk": 100 * data.GIB}
            running = sum((one.news or {}).get("mem", 0) for one in self.guests.values() if one.node == name)
            entry |= {"mem": 2 * data.GIB + running, "cpu": 0.05, "uptime": 86_400} if node.is_online else {}
        return entry

    def _storage(self, name: str, node: str) -> Json:
        storage = self.storages[name]
        entry: Json = {
            "id": f"storage/{node}/{name}",
            "storage": name,
            "node": node,
            "type": "storage",
            "plugintype": storage.kind,
            "content": storage.content,
            "shared": int(storage.is_shared),
            "status": "available" if self.nodes[node].is_online else "unknown",
        }
        return entry | {"maxdisk": storage.size, "disk": storage.used(node)}

    def config(self, node: str, vmid: str) -> Json:
        """One machine's configuration."""
        guest = self.guest(node, vmid)
        self.require(f"/vms/{vmid}", "VM.Audit")
        numbers = {"template", "cores", "sockets", "balloon", "protection", "onboot"}
        shown: Json = {key: int(value) if key in numbers else value for key, value in guest.config.items()}
        return shown | {"digest": f"{hash(tuple(sorted(guest.config.items()))) & (1 << 160) - 1:040x}"}

    def current(self, node: str, vmid: str) -> Json:
        """How a machine is now, by asking its node."""
        guest = self.guest(node, vmid)
        self.require(f"/vms/{vmid}", "VM.Audit")
        status = "running" if guest.is_running else "stopped"
        entry = {"vmid": int(vmid), "status": status, "qmpstatus": status, "ha": {"managed": 0}}
        entry |= {"name": guest.config.get("name", f"VM {vmid}"), "cpus": int(guest.config.get("cores", 1))}
        entry |= {"maxmem": int(guest.config.get("memory", 512)) << 20, "uptime": int(guest.is_running)}
        return entry | {key: guest.config[key] for key in ("lock", "tags") if key in guest.config}

    def volume(self, drive: str) -> tuple[str, str] | None:
        """The storage and the volume of a drive; None when it has none."""
        found = re.match(r"(?:file=)?([A-Za-z0-9._-]+):([^,]+)", drive)
        return (found[1], found[2]) if found else None
