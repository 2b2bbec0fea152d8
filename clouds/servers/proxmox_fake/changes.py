"""What changes machines: clone, settings, resize, start, stop and destroy; as tasks, with locks."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from clouds.servers.proxmox_fake import schema
from clouds.servers.proxmox_fake.cluster import Cluster
from clouds.servers.proxmox_fake.data import GIB, Guest
from clouds.servers.proxmox_fake.refusals import RefusedError, TaskError

__all__ = ["Changes"]

_SIZES: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "": 1}
_DRIVE: Final = re.compile(r"(ide|sata|scsi|virtio)\d+")
_RIGHTS: Final = {
    "tags": "VM.Config.Options",
    "description": "VM.Config.Options",
    "name": "VM.Config.Options",
    "cores": "VM.Config.CPU",
    "sockets": "VM.Config.CPU",
    "memory": "VM.Config.Memory",
    "balloon": "VM.Config.Memory",
    "net0": "VM.Config.Network",
    "smbios1": "VM.Config.HWType",
}


class Changes:
    """Changes a cluster, for one user."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def clone(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Begins a clone, after what can be checked at once."""
        cluster = self._cluster
        schema.check("clone", given)
        source = cluster.guest(node, vmid)
        new, pool = int(given["newid"]), given.get("pool", "")
        self._check_rights(vmid, new, pool)
        self._check_clone(source, node, given)
        if new in cluster.guests and cluster.guests[new].node == node:
            raise RefusedError(500, f"unable to create VM {new}: config file already exists")
        if new in cluster.guests:  # found out by the worker alone
            path = f"/etc/pve/nodes/{node}/qemu-server/{new}.conf"
            return self._begin(
                node, "qmclone", vmid, user, _failing(f"close (rename) atomic file '{path}' failed: File exists")
            )
        guest = cluster.guests[new] = Guest(
            node=node, config={"description": "qmclone temporary file\n", "lock": "clone"}
        )
        cluster.ever.append(given.get("name", ""))
        is_full = given.get("full") == "1"
        seconds = cluster.clone_time * (2 if is_full else 1)
        cluster.agenda.at(time.monotonic() + seconds / 2, lambda: self._copy(guest, source, new, given))
        return cluster.tasks.begin(
            node, "qmclone", vmid, user, seconds, lambda: self._end_clone(guest, given), lambda: self._drop(new)
        )

    def _check_rights(self, vmid: str, new: int, pool: str) -> None:
        cluster = self._cluster
        cluster.require(f"/vms/{vmid}", "VM.Clone")
        if pool and pool not in cluster.pools:
            raise RefusedError(403, f"Permission check failed (/pool/{pool})")
        if not pool or not cluster.may(f"/pool/{pool}", "VM.Allocate"):
            cluster.require(f"/vms/{new}", "VM.Allocate")

    def _check_clone(self, source: Guest, node: str, given: dict[str, str]) -> None:
        cluster, storage, target = self._cluster, given.get("storage", ""), given.get("target", "")
        is_full = given.get("full", "0" if "template" in source.config else "1") == "1"
        if target and target not in cluster.nodes:
            raise RefusedError(500, f"no such cluster node '{target}'")
        if storage:
            self._check_storage(storage, "images", is_remote=bool(target) and target != node)
        if not cluster.is_quorate:
            raise RefusedError(500, "cluster not ready - no quorum?")
        if "lock" in source.config:
            raise RefusedError(500, f"VM is locked ({source.config['lock']})")
        if storage and not is_full:
            raise RefusedError(500, "parameter 'storage' not allowed for linked clones")
        volumes = [
            found for key, value in source.config.items() if _DRIVE.fullmatch(key) and (found := cluster.volume(value))
        ]
        for name, _ in volumes:
            cluster.require(f"/storage/{storage or name}", "Datastore.AllocateSpace")
        if target and target != node and not all(cluster.storages[name].is_shared for name, _ in volumes):
            raise RefusedError(500, f"can't clone VM to node '{target}' (VM uses local storage)")

    def _check_storage(self, name: str, content: str, *, is_remote: bool = False) -> None:
        storage = self._cluster.storages.get(name)
        if storage is None:
            raise RefusedError(500, f"storage '{name}' does not exist")
        if content not in storage.content.split(","):
            raise RefusedError(
                400, "Parameter verification failed.", {"storage": f"storage '{name}' does not support vm images"}
            )
        if is_remote and not storage.is_shared:
            raise RefusedError(500, f"can't clone to non-shared storage '{name}'")

    def _copy(self, guest: Guest, source: Guest, new: int, given: dict[str, str]) -> None:
        """Half way: the disks are there, and with them the configuration. A task that is to fail removes it later."""
        if self._cluster.guests.get(new) is not guest:
            return
        config = {key: value for key, value in source.config.items() if key not in ("template", "description")}
        config |= {key: given[key] for key in ("name", "description") if key in given}
        config["lock"] = "clone"
        for key, value in source.config.items():
            if _DRIVE.fullmatch(key) and (found := self._cluster.volume(value)):
                config[key] = self._volume(guest.node, new, key, value, found[0], given)
        config["smbios1"] = re.sub(r"uuid=[^,]*", f"uuid={uuid.uuid4()}", config.get("smbios1", "uuid="))
        config["net0"] = re.sub(r"=[0-9A-F:]{17}", f"={_mac()}", config.get("net0", "virtio"), count=1)
        guest.config = config

    def _volume(self, node: str, new: int, key: str, value: str, storage: str, given: dict[str, str]) -> str:
        where = given.get("storage") or storage
        name = f"vm-{new}-cloudinit" if "-cloudinit" in value else f"vm-{new}-disk-{key}"
        place = self._cluster.storages[where]
        size = _size(value)
        place.volumes["" if place.is_shared else node, name] = size if given.get("full") == "1" else size // 100
        rest = value.partition(",")[2]
        return f"{where}:{name},{rest}"

    def _end_clone(self, guest: Guest, given: dict[str, str]) -> None:
        cluster = self._cluster
        for storage in cluster.storages.values():
            if storage.used(guest.node) > storage.size:
                raise TaskError('clone failed: lvcreate error:   Volume group "pve" has insufficient free space')
        guest.config.pop("lock", None)
        guest.node = given.get("target") or guest.node
        guest.pool = given.get("pool", "")

    def _drop(self, vmid: int) -> None:
        """Removes a machine and its volumes."""
        for storage in self._cluster.storages.values():
            for place in [key for key in storage.volumes if key[1].startswith(f"vm-{vmid}-")]:
                del storage.volumes[place]
        self._cluster.guests.pop(vmid, None)

    # -- the other changes ---------------------------------------------------------------------------------------------

    def setup(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Changes settings, in a task."""
        guest, gone = self._checked(node, vmid, given)
        return self._begin(node, "qmconfig", vmid, user, lambda: self._set(guest, vmid, given, gone))

    def setup_at_once(self, node: str, vmid: str, given: dict[str, str]) -> None:
        """Changes settings, before it answers."""
        guest, gone = self._checked(node, vmid, given)
        self._set(guest, vmid, given, gone)

    def _checked(self, node: str, vmid: str, given: dict[str, str]) -> tuple[Guest, Sequence[str]]:
        cluster = self._cluster
        schema.check("config", given)
        guest = self._unlocked(node, vmid)
        digest, gone = given.pop("digest", ""), [key for key in given.pop("delete", "").split(",") if key]
        if digest not in ("", cluster.config(node, vmid)["digest"]):
            raise RefusedError(500, "detected modified configuration - file changed by other user? Try again.")
        for key, value in (given | dict.fromkeys(gone, "")).items():
            is_cd = bool(_DRIVE.fullmatch(key)) and "media=cdrom" in value
            right = _RIGHTS.get(key) or ("VM.Config.CDROM" if is_cd else "VM.Config.Disk")
            cluster.require(f"/vms/{vmid}", right)
            if is_cd and (found := cluster.volume(value)) and not self._file(found, node):
                raise RefusedError(500, f"volume '{':'.join(found)}' does not exist")
        return guest, gone

    def _set(self, guest: Guest, vmid: str, given: dict[str, str], gone: Sequence[str]) -> None:
        for key in gone:
            guest.config.pop(key, None)
        for key, value in given.items():
            old = guest.config.get(key, "")
            if _DRIVE.fullmatch(key) and "-cloudinit" in old and (found := self._cluster.volume(old)):
                storage = self._cluster.storages[found[0]]
                storage.volumes.pop(("" if storage.is_shared else guest.node, f"vm-{vmid}-cloudinit"), None)
            guest.config[key] = value
        if "tags" in given:
            tags = {tag.lower() for tag in re.split(r"[;, ]+", given["tags"]) if tag}
            guest.config["tags"] = ";".join(sorted(tags))
        if "description" in given:
            guest.config["description"] = given["description"] + "\n"
        if "net0" in given and not re.search(r"=[0-9A-Fa-f:]{17}", given["net0"]):
            model, _, rest = given["net0"].partition(",")
            guest.config["net0"] = f"{model}={_mac()},{rest}"

    def resize(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Makes a disk larger."""
        schema.check("resize", given)
        guest = self._unlocked(node, vmid)
        self._cluster.require(f"/vms/{vmid}", "VM.Config.Disk")

        def act() -> None:
            drive, size = guest.config.get(given["disk"], ""), _size(f"size={given['size']}")
            if not drive:
                raise TaskError(f"disk '{given['disk']}' does not exist")
            if size < _size(drive):
                raise TaskError("shrinking disks is not supported")
            guest.config[given["disk"]] = re.sub(r"size=\w+", f"size={_written(size)}", drive)

        return self._begin(node, "resize", vmid, user, act)

    def start(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Starts a machine."""
        schema.check("start", given)
        guest = self._cluster.guest(node, vmid)
        self._cluster.require(f"/vms/{vmid}", "VM.PowerMgmt")

        def act() -> None:
            if "lock" in guest.config:
                raise TaskError(f"VM is locked ({guest.config['lock']})")
            if guest.is_running:
                raise TaskError(f"VM {vmid} already running")
            for key, value in guest.config.items():
                if _DRIVE.fullmatch(key) and ":iso/" in value and not self._file(self._cluster.volume(value), node):
                    raise TaskError(f"volume '{value.partition(',')[0]}' does not exist")
            guest.is_running = True

        return self._begin(node, "qmstart", vmid, user, act)

    def stop(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Switches a machine off."""
        schema.check("stop", given)
        guest = self._cluster.guest(node, vmid)
        self._cluster.require(f"/vms/{vmid}", "VM.PowerMgmt")

        def act() -> None:
            if "lock" in guest.config:
                raise TaskError(f"VM is locked ({guest.config['lock']})")
            guest.is_running = False

        return self._begin(node, "qmstop", vmid, user, act)

    def destroy(self, user: str, node: str, vmid: str, given: dict[str, str]) -> str:
        """Destroys a machine."""
        schema.check("destroy", given)
        guest = self._cluster.guest(node, vmid)
        self._cluster.require(f"/vms/{vmid}", "VM.Allocate")
        if guest.config.get("protection") == "1":
            raise RefusedError(500, f"can't remove VM {vmid} - protection mode enabled")
        if guest.is_running:
            raise RefusedError(500, f"VM {vmid} is running - destroy failed")

        def act() -> None:
            if guest.config.get("lock"):
                raise TaskError(f"VM is locked ({guest.config['lock']})")
            if self._cluster.guests.get(int(vmid)) is not guest:
                raise TaskError(f"Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist")
            self._drop(int(vmid))

        return self._begin(node, "qmdestroy", vmid, user, act)

    def _unlocked(self, node: str, vmid: str) -> Guest:
        guest = self._cluster.guest(node, vmid)
        if "lock" in guest.config:
            raise RefusedError(500, f"VM is locked ({guest.config['lock']})")
        return guest

    def _file(self, volume: tuple[str, str] | None, node: str) -> bool:
        if volume is None or not volume[1].startswith("iso/"):
            return True
        storage = self._cluster.storages.get(volume[0])
        place = "" if storage is not None and storage.is_shared else node
        return storage is not None and (place, volume[1].removeprefix("iso/")) in storage.files

    def _begin(self, node: str, kind: str, vmid: str, user: str, act: Callable[[], None]) -> str:
        return self._cluster.tasks.begin(node, kind, vmid, user, self._cluster.task_time, act)


def _failing(message: str) -> Callable[[], None]:
    def act() -> None:
        raise TaskError(message)

    return act


def _mac() -> str:
    return "BC:24:11:" + ":".join(f"{byte:02X}" for byte in secrets.token_bytes(3))


def _size(drive: str) -> int:
    found = re.search(r"size=(\d+)([KMGT]?)", drive)
    return int(found[1]) * _SIZES[found[2]] if found else 0


def _written(size: int) -> str:
    return f"{size // GIB}G" if size % GIB == 0 else f"{size >> 20}M"
