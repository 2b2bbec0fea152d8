"""Puts our marks on a machine that is there already, and takes them off.

They are kept as tags, which are in the list of all machines. The VMID is among them, as it is for machines that we
make, so that a clone of the machine is not taken for it. Tags of others stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgraft.drivers.proxmox.api import Api
from cloudgraft.drivers.proxmox.inventory import read_inventory
from cloudgraft.drivers.proxmox.machines import marks_of
from cloudgraft.drivers.proxmox.marks import Marks, other_tags, without_marks
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.sdk.errors import NotFoundError

__all__ = ["Marking"]


class Marking:
    """Marks machines."""

    def __init__(self, api: Api, options: ProxmoxOptions) -> None:
        self._api = api
        self._options = options

    def mark(self, vmid: int, name: str, tags: Mapping[str, str | None], what: str) -> None:
        """Sets these marks, and removes those that are None. Raises NotFoundError when it is another by now."""
        guest = read_inventory(self._api, what).guests.get(vmid)
        if guest is None or guest.is_container or guest.is_template:
            raise NotFoundError(f"{what}: there is no VM {vmid}")
        path = f"nodes/{guest.node}/qemu/{vmid}/config"
        config = self._api.get(path, what)
        known = marks_of(config, vmid, self._options)
        if name not in (str(config.get("name", "")), known.name if known is not None else ""):
            raise NotFoundError(f"{what}: VM {vmid} is another machine by now")
        wanted = {key: value for key, value in ({**known.tags, **tags} if known else tags).items() if value is not None}
        marks = Marks(tags=wanted, made=known.made if known else None, vmid=vmid) if wanted else None
        # The digest makes Proxmox refuse it if somebody has changed the machine since it was read.
        self._api.put(path, what, digest=config["digest"], **_changes(config, marks))


def _changes(config: Mapping[str, Any], marks: Marks | None) -> dict[str, object]:
    others = other_tags(str(config.get("tags", "")))
    if marks is not None:
        return {"tags": ";".join([*others, marks.as_tags()])}
    changes: dict[str, object] = {"tags": ";".join(others)} if others else {"delete": "tags"}
    notes = str(config.get("description", ""))
    if without_marks(notes) != notes:
        changes["description"] = without_marks(notes)
    return changes
