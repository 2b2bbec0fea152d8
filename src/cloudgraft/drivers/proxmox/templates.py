"""Templates: which there are, where they can be cloned to, and which of their disks is the one that grows."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import Inventory
from cloudgraft.drivers.proxmox.settings import DRIVE
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["Source", "Templates", "boot_disk", "drives", "size_of"]

_LASTS: Final = 300.0  # seconds for which a template's configuration is believed
_SIZE: Final = re.compile(r"(?:^|,)size=(\d+)([KMGT]?)(?:,|$)")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A template that a machine can be cloned from."""

    vmid: int
    node: str
    is_shared: bool  # all its disks are where every node has them
    disk: str  # the drive that a shape's disk is about; empty when it has none
    size: int  # of that drive, in bytes; 0 when nobody knows


class Templates:
    """Their configurations, each asked for once in a while."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[int, tuple[float, Mapping[str, Any]]] = {}

    def forget(self) -> None:
        """Somebody may have made others."""
        with self._lock:
            self._known.clear()

    def find(self, wanted: int | str, disk: str, inventory: Inventory) -> Sequence[Source]:
        """All templates that are meant, those on nodes that are online; raises when there is none."""
        found = [
            guest
            for guest in inventory.guests.values()
            if not guest.is_container and (str(guest.vmid) == str(wanted) or guest.name == wanted)
        ]
        if not found:
            raise InvalidArgumentError(
                f"machine.template: there is no template {wanted!r}, or the user may not see it (VM.Audit)"
            )
        templates = [guest for guest in found if guest.is_template or guest.status == "unknown"]
        if not templates:
            raise InvalidArgumentError(f"machine.template: {wanted!r} is a machine, and no template")
        online = [guest for guest in templates if inventory.node_of(guest.node) == "online"]
        return [self._source(guest.vmid, guest.node, disk, inventory) for guest in online]

    def _source(self, vmid: int, node: str, disk: str, inventory: Inventory) -> Source:
        config = self._config(vmid, node)
        if not config.get("template"):
            raise InvalidArgumentError(f"machine.template: {vmid} is a machine, and no template")
        chosen = disk or boot_disk(config)
        if disk and disk not in config:
            raise InvalidArgumentError(f"machine.disk: the template {vmid} has no {disk}")
        storages = [volume.partition(":")[0] for volume in drives(config).values() if ":" in volume]
        return Source(
            vmid=vmid,
            node=node,
            is_shared=all(map(inventory.is_shared, storages)),
            disk=chosen,
            size=size_of(str(config.get(chosen, ""))),
        )

    def _config(self, vmid: int, node: str) -> Mapping[str, Any]:
        with self._lock:
            until, known = self._known.get(vmid, (0.0, {}))
        if time.monotonic() < until:
            return known
        config: Mapping[str, Any] = self._api.get(f"nodes/{node}/qemu/{vmid}/config", f"template {vmid}")
        with self._lock:
            self._known[vmid] = (time.monotonic() + _LASTS, config)
        return config


def drives(config: Mapping[str, Any]) -> dict[str, str]:
    """The volumes of a machine by their drives, also those of EFI and TPM; and what is no volume, such as ``none``."""
    return {
        key: str(value).partition(",")[0].removeprefix("file=")
        for key, value in config.items()
        if DRIVE.fullmatch(key) or key in ("efidisk0", "tpmstate0")
    }


def boot_disk(config: Mapping[str, Any]) -> str:
    """The drive that a machine boots from: the first disk of its boot order, else the first that it has."""
    disks = [key for key in sorted(drives(config)) if DRIVE.fullmatch(key) and "media=cdrom" not in str(config[key])]
    order = re.search(r"order=([^,\s]+)", str(config.get("boot", "")))
    wanted = order[1].split(";") if order else [str(config.get("bootdisk", ""))]
    return next((key for key in wanted if key in disks), disks[0] if disks else "")


def size_of(drive: str) -> int:
    """The size of a drive in bytes, as its configuration tells it; 0 when it does not."""
    found = _SIZE.search(drive)
    return int(found[1]) * _UNITS[found[2]] if found else 0
