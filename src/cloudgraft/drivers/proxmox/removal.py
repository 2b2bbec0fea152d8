"""Deletes a machine: stops it, removes its CD, then the machine itself with its disks.

The order matters: an interrupted delete leaves a machine that is visible and can be deleted again, and never a
forgotten CD with secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudgraft.drivers.proxmox.api import Api, Clock, Tasks
from cloudgraft.drivers.proxmox.inventory import VMID_MARK, from_tags, read_inventory
from cloudgraft.drivers.proxmox.machines import marks_of
from cloudgraft.drivers.proxmox.options import ProxmoxOptions
from cloudgraft.drivers.proxmox.placement import drives
from cloudgraft.sdk.errors import (
    CloudgraftError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
)

_GONE: Final = "does not exist"


class Removal:
    """Removes machines."""

    def __init__(self, api: Api, options: ProxmoxOptions) -> None:
        self._api = api
        self._options = options
        self._tasks = Tasks(api)

    def remove(self, vmid: int, name: str, what: str) -> None:
        """Removes a machine with all that was made for it. One that is gone, or is another by now, is left alone."""
        clock = Clock(self._options.delete_timeout)
        while True:
            guest = read_inventory(self._api, what).guests.get(vmid)
            if guest is None or guest.is_container or guest.is_template:
                return
            try:
                self._remove_at(guest.node, vmid, name, what, clock)
            except ConflictError as error:  # it is still being cloned, or somebody else works on it
                clock.pause(error.message)
            except NotFoundError:  # gone, or just now on another node: the next list tells
                clock.pause(what)
            else:
                return

    def _remove_at(self, node: str, vmid: int, name: str, what: str, clock: Clock) -> None:
        base = f"nodes/{node}/qemu/{vmid}"
        config = self._api.get(f"{base}/config", what)
        if config.get("lock") == "clone":
            raise ConflictError(f"{what}: it is still being cloned")
        if not self._is_meant(config, vmid, name, what):
            return
        if config.get("protection"):
            raise PreconditionError(f"{what}: protection mode enabled; take the protection off the machine")
        self._stop(base, what, clock)
        is_set_up = marks_of(config, vmid, self._options) == from_tags(str(config.get("tags", "")))
        trouble = self._remove_seed(node, name, config, what, clock, is_set_up=is_set_up)
        query = {"purge": 1, "destroy-unreferenced-disks": 1}
        self._tasks.finish(self._api.delete(base, what, **query), f"{what}, its end", clock)
        if trouble is not None:
            raise trouble

    def _is_meant(self, config: Mapping[str, Any], vmid: int, name: str, what: str) -> bool:
        """VMIDs are given away again: what has another name is another machine, unless its marks say that it is ours.

        To say of what may be ours that it is gone would let it run on for ever, and nobody would know.
        """
        marks, called = marks_of(config, vmid, self._options), str(config.get("name", ""))
        if marks is None:
            return called == name
        if not marks.is_made_for(vmid, self._options.first_vmid, self._options.last_vmid):
            if name not in (called, marks.name):
                return False
            raise PreconditionError(
                f"{what}: VM {vmid} has marks of an older release, and they were not made for this VMID: it may be a "
                f"copy, and is left alone. If it is none, give it the tag {VMID_MARK}+{vmid}; else take our tags and "
                "notes off it"
            )
        if marks.name and marks.name != name:
            raise PreconditionError(f"{what}: by its marks VM {vmid} is {marks.name}; it is left alone")
        return bool(marks.name) or called == name

    def _stop(self, base: str, what: str, clock: Clock) -> None:
        if not self._is_running(base, what):
            return
        self._tasks.finish(self._api.post(f"{base}/status/stop", what), f"{what}, the stop", clock)
        while self._is_running(base, what):  # the cluster's HA manager is only asked to stop it
            clock.pause(f"{what}, the stop")

    def _is_running(self, base: str, what: str) -> bool:
        return bool(self._api.get(f"{base}/status/current", what).get("status") == "running")

    def _remove_seed(
        self, node: str, name: str, config: Mapping[str, Any], what: str, clock: Clock, *, is_set_up: bool
    ) -> CloudgraftError | None:
        """Gives what stands in the way. The machine costs more than its CD, and is removed all the same."""
        own = [value for value in drives(config).values() if value.endswith(f":iso/{name}.iso")]
        # It may be stored and not attached yet, or somebody has ejected it: then its drive does not tell of it.
        for volid in {*own, seed_volume(self._options.seed_storage, name)}:
            storage = volid.partition(":")[0]
            path = f"nodes/{node}/storage/{storage}/content/{volid}"
            try:
                self._tasks.finish(self._api.delete(path, what), f"{what}, its CD", clock)
            except (PermissionDeniedError, InvalidArgumentError) as error:
                # Whoever gives machines no user data needs no right on that storage.
                if volid in own or (isinstance(error, PermissionDeniedError) and not is_set_up):
                    return type(error)(f"{error.message}; the machine is gone, and its CD {volid} is left")
            except CloudgraftError as error:
                is_gone = _GONE in error.message or "No such file" in error.message
                # One that is set up and has no CD most likely never had one: no storage may keep it alive.
                if not is_gone and (volid in own or not is_set_up):
                    raise
        return None


def seed_volume(storage: str, name: str) -> str:
    """The CD with a machine's user data."""
    return f"{storage}:iso/{name}.iso"
