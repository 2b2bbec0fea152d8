"""Creates and deletes machines."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cloudgraft.drivers.common.seed_iso import seed_iso
from cloudgraft.drivers.proxmox.api import Api, Clock
from cloudgraft.drivers.proxmox.inventory import (
    VMID_MARK,
    Guest,
    Marks,
    from_description,
    from_tags,
    read_inventory,
    uuid_of,
)
from cloudgraft.drivers.proxmox.machines import marks_of
from cloudgraft.drivers.proxmox.options import MEBIBYTE, MachineSettings, ProviderIdForm, ProxmoxOptions, ShapeOptions
from cloudgraft.drivers.proxmox.placement import Place, Placement, Templates, boot_disk, drives, size_of
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    Retry,
    UnavailableError,
)

# -- deletes -----------------------------------------------------------------------------------------------------------
# A delete stops the machine, removes its CD, then the machine itself with its disks. The order matters: an interrupted
# delete leaves a machine that is visible and can be deleted again, and never a forgotten CD with secrets.

_GONE: Final = "does not exist"


class Removal:
    """Removes machines."""

    def __init__(self, api: Api, options: ProxmoxOptions) -> None:
        self._api = api
        self._options = options

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
            except NotFoundError:  # gone, or moved to another node: the next list shows it
                clock.pause(what)
            else:
                return

    def _remove_at(self, node: str, vmid: int, name: str, what: str, clock: Clock) -> None:
        base = f"nodes/{node}/qemu/{vmid}"
        config = self._api.config(node, vmid, what)
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
        self._api.finish(self._api.delete(base, what, **query), f"{what}, its end", clock)
        if trouble is not None:
            raise trouble

    def _is_meant(self, config: Mapping[str, Any], vmid: int, name: str, what: str) -> bool:
        """Returns whether it is still this machine. VMIDs are reused: one with another name is another machine.

        Marks count more than the name. A machine that may be ours must not be reported as gone: it would run for ever.
        """
        marks, called = marks_of(config, vmid, self._options), str(config.get("name", ""))
        if marks is None:
            return called == name
        if not marks.is_made_for(vmid, self._options):
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
        self._api.finish(self._api.post(f"{base}/status/stop", what), f"{what}, the stop", clock)
        while self._is_running(base, what):  # the cluster's HA manager is only asked to stop it
            clock.pause(f"{what}, the stop")

    def _is_running(self, base: str, what: str) -> bool:
        return bool(self._api.get(f"{base}/status/current", what).get("status") == "running")

    def _remove_seed(
        self, node: str, name: str, config: Mapping[str, Any], what: str, clock: Clock, *, is_set_up: bool
    ) -> CloudgraftError | None:
        """Returns the error that keeps the CD. The machine costs more than its CD, so it is removed anyway."""
        own = [value for value in drives(config).values() if value.endswith(f":iso/{name}.iso")]
        # It may be stored and not attached yet, or ejected by hand: then its drive does not show it.
        for volid in {*own, seed_volume(self._options.seed_storage, name)}:
            storage = volid.partition(":")[0]
            path = f"nodes/{node}/storage/{storage}/content/{volid}"
            try:
                self._api.finish(self._api.delete(path, what), f"{what}, its CD", clock)
            except (PermissionDeniedError, InvalidArgumentError) as error:
                # Without user data, no permission for that storage is needed.
                if volid in own or (isinstance(error, PermissionDeniedError) and not is_set_up):
                    return type(error)(f"{error.message}; the machine is gone, and its CD {volid} is left")
            except CloudgraftError as error:
                is_gone = _GONE in error.message or "No such file" in error.message
                # A finished machine without a CD most likely never had one: no storage may keep it alive.
                if not is_gone and (volid in own or not is_set_up):
                    raise
        return None


def seed_volume(storage: str, name: str) -> str:
    """Returns the volume of the CD with a machine's user data."""
    return f"{storage}:iso/{name}.iso"


# -- creates -----------------------------------------------------------------------------------------------------------
# The steps from a template to a machine that starts:
#
# 1. Clone, with name, pool and, as its description, the marks. Its VMID is derived from its name, so Proxmox refuses a
#    second one.
# 2. Upload the CD with user data, named like the machine.
# 3. Grow the disk.
# 4. Set CPUs, memory, network and CD in one call.
# 5. Start.
# 6. Set the marks again, as tags: they show that the machine is complete.
#
# An interruption between two steps leaves a machine with marks in its description, and without tags. While a create may
# work on it or be repeated, lists leave it out: the engine takes a listed machine as accepted, and would not finish it.
# A repeated create continues where the first one ended: it finds the machine by its VMID, resets the start time in its
# description, and repeats what may be missing. Every step is safe to repeat, and a running machine only lacks its tags.
# So a create whose response got lost is also repeated here, a few times. A step that fails finally removes what was
# made. A machine that no create finished is listed in the end: see machines.

_ATTEMPTS: Final = 3  # to finish one create, when responses get lost
_UUID: Final = re.compile(r"(?:^|,)uuid=[^,]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One machine to create."""

    vmid: int
    name: str
    marks: Marks
    shape: ShapeOptions
    settings: MachineSettings
    user_data: str


class Making:
    """Creates machines."""

    def __init__(self, api: Api, options: ProxmoxOptions, removal: Removal) -> None:
        self._api = api
        self._options = options
        self._removal = removal
        self._templates = Templates(api)
        self._placement = Placement(options)

    def make(self, order: Order) -> Marks:
        """Creates the machine, or finishes it; returns its marks.

        After a lost response it continues: the VMID shows what exists.
        """
        what = f"create of {order.name}"
        clock = Clock(self._options.create_timeout)
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._attempt(order, what, clock, is_first=attempt == 1)
            except DeadlineError as error:
                if clock.is_over:
                    raise
                clock.pause(error.message)
        return self._attempt(order, what, clock, is_first=False)

    def _attempt(self, order: Order, what: str, clock: Clock, *, is_first: bool) -> Marks:
        try:
            node, config = self._cloned(order, what, clock)
        except CloudgraftError as error:
            if not is_first:  # an earlier clone may still be in progress, whatever the error
                raise DeadlineError(f"{error.message}; whether an earlier try was done is not known") from None
            if error.retry is Retry.NO:
                self._templates.forget()  # it may be another one by now
                self._placement.release(order.vmid)
            raise
        try:
            return self._finish(order, node, config, what, clock)
        except CloudgraftError as error:
            raise self._undone(order, error, what) from None

    def release(self, vmid: int) -> None:
        """Releases the reservation of a machine that is gone."""
        self._placement.release(vmid)

    # -- the clone -----------------------------------------------------------------------------------------------------

    def _cloned(self, order: Order, what: str, clock: Clock) -> tuple[str, Mapping[str, Any]]:
        """Returns the node and the configuration of the clone, whichever call made it."""
        while True:
            try:
                return self._found_or_cloned(order, what, clock)
            except ConflictError as error:  # another operation has locked the template or the VMID
                self._placement.release(order.vmid)
                clock.pause(error.message)

    def _found_or_cloned(self, order: Order, what: str, clock: Clock) -> tuple[str, Mapping[str, Any]]:
        inventory = read_inventory(self._api, what)
        guest = inventory.guests.get(order.vmid)
        if guest is not None:
            if guest.is_container:
                _check_same(order, guest.name or "a container", None, what)
            return self._settled(order, guest, what, clock)
        settings = order.settings
        sources = self._templates.find(settings.template, settings.disk, inventory)
        for source in sources:
            if order.shape.disk_bytes and source.size > order.shape.disk_bytes:
                raise InvalidArgumentError(
                    f"{what}: the template's disk has {source.size // MEBIBYTE} MiB, and that of the shape "
                    f"{settings.shape} only {order.shape.disk_bytes // MEBIBYTE}; disks can only grow"
                )
        place = self._placement.choose(order.vmid, order.shape, settings, sources, inventory)
        try:
            self._clone(order, place, what, clock)
        except AlreadyExistsError:  # another call was faster, perhaps our own whose response got lost
            return self._settled(order, None, what, clock)
        return place.node, self._config(place.node, order.vmid, what)

    def _clone(self, order: Order, place: Place, what: str, clock: Clock) -> None:
        given: dict[str, object] = {
            "newid": order.vmid,
            "name": order.name,
            "description": order.marks.as_description(),
            "full": int(order.settings.full_clone),
        }
        if self._options.pool:
            given["pool"] = self._options.pool
        storage = order.settings.storage or self._options.storage
        if order.settings.full_clone and storage:
            given["storage"] = storage
        if place.node != place.source.node:
            given["target"] = place.node
        path = f"nodes/{place.source.node}/qemu/{place.source.vmid}/clone"
        try:
            answer = self._api.post(path, what, **given)
        except NotFoundError as error:  # the template is gone
            raise InvalidArgumentError(f"machine.template: {error.message}") from None
        self._api.finish(answer, f"{what}, the clone", clock)

    def _settled(self, order: Order, guest: Guest | None, what: str, clock: Clock) -> tuple[str, Mapping[str, Any]]:
        """Waits until another call's clone is complete, and checks that it is the right machine."""
        is_seen = guest is not None
        clock.rest()
        while True:
            if guest is not None:
                is_seen = True
                config = self._config_or_none(guest.node, order.vmid, what)
                if config is not None and config.get("name"):
                    _check_same(order, str(config["name"]), marks_of(config, order.vmid, self._options), what)
                    if not config.get("lock"):
                        return guest.node, config
            elif is_seen:
                raise ConflictError(f"{what}: the clone that was begun before has failed, and is gone")
            clock.pause(f"{what}: VM {order.vmid} exists, and is not whole")
            with contextlib.suppress(UnavailableError):  # the clone continues meanwhile
                guest = read_inventory(self._api, what).guests.get(order.vmid)

    def _config(self, node: str, vmid: int, what: str) -> Mapping[str, Any]:
        try:
            return self._api.config(node, vmid, what)
        except CloudgraftError as error:  # the clone exists, so the error must not claim that nothing was done
            raise DeadlineError(f"{error.message}; it was cloned") from None

    def _config_or_none(self, node: str, vmid: int, what: str) -> Mapping[str, Any] | None:
        """Returns None when it has moved to another node, or is not in its pool yet and so not visible."""
        try:
            return self._api.config(node, vmid, what)
        except (NotFoundError, PermissionDeniedError, UnavailableError):
            return None

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _finish(self, order: Order, node: str, config: Mapping[str, Any], what: str, clock: Clock) -> Marks:
        """Does the missing steps; returns the machine's marks."""
        tags = from_tags(str(config.get("tags", "")))
        if tags is not None and tags.is_made_for(order.vmid, self._options) and tags.name == order.marks.name:
            return tags  # finished; other tags came from its template, which was once a machine of ours
        base = f"nodes/{node}/qemu/{order.vmid}"
        known = from_description(str(config.get("description", "")))
        if known is None or known.made != order.marks.made:  # reset its start time
            self._set(base, {"description": order.marks.as_description()}, what, clock)
        if self._api.get(f"{base}/status/current", what).get("status") != "running":
            if order.user_data:
                self._upload(order, node, what, clock)
            self._grow(order, base, config, what, clock)
            self._set(base, self._setup(order, config), f"{what}, its settings", clock)
            self._change(lambda: self._api.post(f"{base}/status/start", what), f"{what}, the start", clock)
        self._set(base, {"tags": order.marks.as_tags()}, f"{what}, its tags", clock)
        return order.marks

    def _set(self, base: str, given: Mapping[str, object], what: str, clock: Clock) -> None:
        self._change(lambda: self._api.post(f"{base}/config", what, **given), what, clock)

    def _upload(self, order: Order, node: str, what: str, clock: Clock) -> None:
        image = seed_iso(name=order.name, user_data=order.user_data)
        storage = self._options.seed_storage
        answer = self._api.upload(f"nodes/{node}/storage/{storage}/upload", what, f"{order.name}.iso", image)
        self._api.finish(answer, f"{what}, its user data", clock)

    def _grow(self, order: Order, base: str, config: Mapping[str, Any], what: str, clock: Clock) -> None:
        disk = order.settings.disk or boot_disk(config)
        if not order.shape.disk_bytes or size_of(str(config.get(disk, ""))) == order.shape.disk_bytes:
            return
        if not disk:
            raise InvalidArgumentError(f"{what}: the template has no disk to make larger; name it in machine.disk")
        size = f"{order.shape.disk_bytes // MEBIBYTE}M"
        self._change(lambda: self._api.put(f"{base}/resize", what, disk=disk, size=size), f"{what}, its disk", clock)

    def _setup(self, order: Order, config: Mapping[str, Any]) -> dict[str, object]:
        settings, shape = order.settings, order.shape
        given: dict[str, object] = {
            "sockets": 1,
            "cores": shape.cpu,
            "memory": shape.memory_bytes // MEBIBYTE,
            "balloon": 0,  # Kubernetes relies on the memory
        }
        if settings.bridge:
            tag = f",tag={settings.vlan}" if settings.vlan is not None else ""
            given["net0"] = f"{settings.model},bridge={settings.bridge}{tag}"
        if self._options.providerID is ProviderIdForm.UUID:
            others = _UUID.sub("", str(config.get("smbios1", ""))).strip(",")
            given["smbios1"] = ",".join(part for part in (f"uuid={uuid_of(order.name)}", others) if part)
        if order.user_data:
            given[_seed_drive(settings.seed_drive, config)] = (
                f"{seed_volume(self._options.seed_storage, order.name)},media=cdrom"
            )
        return given

    def _change(self, change: Callable[[], object], what: str, clock: Clock) -> None:
        """Retries a change while another operation locks the machine."""
        while True:
            try:
                self._api.finish(change(), what, clock)
            except ConflictError as error:
                clock.pause(error.message)
            except CloudgraftError as error:
                if "already running" in error.message:
                    return
                raise
            else:
                return

    def _undone(self, order: Order, error: CloudgraftError, what: str) -> CloudgraftError:
        """Returns the exception for a clone that cannot be finished."""
        if isinstance(error, NotFoundError):
            error = ConflictError(f"{error.message}; it was deleted while it was made")
        elif error.retry is not Retry.NO and not isinstance(error, ConflictError):
            return DeadlineError(f"{error.message}; it was cloned, and is not finished")
        try:
            self._removal.remove(order.vmid, order.name, f"{what}, which failed")
        except CloudgraftError as other:
            return DeadlineError(f"{error.message}; what was made of it could not be removed: {other.message}")
        self._placement.release(order.vmid)
        self._templates.forget()
        return error


def _check_same(order: Order, name: str, marks: Marks | None, what: str) -> None:
    """Checks that the VMID of a name does not belong to another machine."""
    if marks is not None and marks.tags == order.marks.tags:
        return
    if order.name in (name, marks.name if marks is not None else ""):
        raise AlreadyExistsError(f"{what}: VM {order.vmid} has this name, and not the marks of this cluster and group")
    raise PreconditionError(
        f"{what}: its VMID would be {order.vmid}, and that is {name}. A machine of another name gets another VMID; if "
        "this happens often, let firstVmid and lastVmid be further apart"
    )


def _seed_drive(wanted: str, config: Mapping[str, Any]) -> str:
    """Returns the drive for the CD: that of Proxmox's own cloud-init drive, if any, since only one may exist."""
    volumes = drives(config)
    own = [drive for drive, volume in volumes.items() if "-cloudinit" in volume]
    if own:
        return own[0]
    if wanted in volumes and "media=cdrom" not in str(config[wanted]):
        raise InvalidArgumentError(f"machine.seedDrive: the template has a disk at {wanted}; take another drive")
    return wanted
