"""Converts virtual machines: builds the clone call, and reads what vCenter shows. Calls no vCenter."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.drivers.common.listing import CLOCKS_DIFFER
from cloudgraft.drivers.vsphere.inventory import Network, Template
from cloudgraft.drivers.vsphere.options import MARKS, MachineSettings, Size
from cloudgraft.drivers.vsphere.pyvmomi import Data, Reference, vim
from cloudgraft.sdk.driver import Machine, MachineSpec, MachineState
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

# -- names and marks ---------------------------------------------------------------------------------------------------
# They prove that a virtual machine is ours. A machine's name is its virtual machine's name, which is unique in the
# folder. Its marks are in extraConfig, set by the call that creates it. Its id is the instance UUID, which is derived
# from the name before the virtual machine exists. A clone made by hand has the marks of its original, but another
# instance UUID: so a machine is ours only where both agree.

NAME_KEY: Final = f"{MARKS}name"
TAGS_KEY: Final = f"{MARKS}tags"
_NAMES: Final = uuid.UUID("6d0c2f3e-53f2-5d5b-9c53-0b1d6f5e3a77")  # never change it: every machine's id depends on it
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")  # 80 characters; vCenter rewrites some others
_LONGEST: Final = 60_000  # characters of one value in extraConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The ownership marks of a virtual machine."""

    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Raises InvalidArgumentError for a name that vCenter would refuse or change."""
    if not _PLAIN.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is no name for a virtual machine: at most 80 letters, digits, dots, dashes and underscores"
        )


def instance_uuid(name: str) -> str:
    """Returns the instance UUID of the machine with this name, as vCenter writes it."""
    return str(uuid.uuid5(_NAMES, name))


def marks_for(spec: MachineSpec) -> dict[str, str]:
    """Returns the marks as advanced settings."""
    tags = json.dumps(dict(spec.tags), sort_keys=True)
    if len(tags) > _LONGEST:
        raise InvalidArgumentError(f"the tags of {spec.name} are too long: at most {_LONGEST} characters as JSON")
    return {NAME_KEY: spec.name, TAGS_KEY: tags}


def marks_in(settings: Mapping[str, str]) -> Marks | None:
    """Reads the marks from the advanced settings of a virtual machine; None when it has none that can be read."""
    name, written = settings.get(NAME_KEY), settings.get(TAGS_KEY)
    if not name or written is None:
        return None
    try:
        tags = json.loads(written)
    except ValueError:
        return None
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        return None
    return Marks(name=name, tags=tags)


# -- what vCenter shows ------------------------------------------------------------------------------------------------

# By their keys: all of extraConfig would bring the user data of every machine along.
_MARKS: Final = tuple(f'config.extraConfig["{key}"]' for key in (NAME_KEY, TAGS_KEY))
PROPERTIES: Final = (
    "name",
    "config.template",
    "config.uuid",
    "config.instanceUuid",
    *_MARKS,
    "config.createDate",
    "runtime.powerState",
    "runtime.connectionState",
    "guest.ipAddress",
    "guest.hostName",
)
_STATES: Final = {
    "poweredOn": MachineState.RUNNING,
    "poweredOff": MachineState.STOPPED,
    "suspended": MachineState.STOPPED,
}
_SWITCHED_ON: Final = timedelta(minutes=3)  # after it was made, at the latest: the clone does that at its end


def machine_of(shown: Mapping[str, Data], now: datetime) -> Machine | None:
    """Converts what vCenter shows; None for what is no machine, such as a template.

    A virtual machine with our marks and another instance UUID was copied by hand. It has its own name, and no marks:
    they belong to its original.
    """
    if shown.get("config.template"):
        return None
    name, instance = str(shown.get("name") or ""), str(shown.get("config.instanceUuid") or "").lower()
    marks = marks_of(shown)
    if not instance:  # vCenter shows the name of a new one first
        return in_progress(name, "it is being made")
    is_own = marks is not None and instance == instance_uuid(marks.name)
    state, reason = _state(shown, now)
    bios_uuid = str(shown.get("config.uuid") or "").lower()
    return Machine(
        name=marks.name if marks is not None and is_own else name,
        machine_id=instance,
        provider_id=f"vsphere://{bios_uuid}" if bios_uuid else None,  # as vSphere's cloud provider writes it
        state=state,
        tags=marks.tags if marks is not None and is_own else {},
        created_at=_moment(shown.get("config.createDate")),
        reason=reason if marks is None or is_own else f"it is a copy of {marks.name}, made by hand",
        addresses=tuple(str(shown[key]) for key in ("guest.ipAddress", "guest.hostName") if shown.get(key)),
    )


def in_progress(name: str, reason: str, tags: Mapping[str, str] | None = None) -> Machine:
    """Returns a machine that is being created."""
    return Machine(
        name=name, machine_id=instance_uuid(name), state=MachineState.PENDING, tags=tags or {}, reason=reason
    )


def marks_of(shown: Mapping[str, Data]) -> Marks | None:
    """Reads the marks of a virtual machine."""
    settings = [shown[path] for path in _MARKS if shown.get(path) is not None]
    return marks_in({str(one.key): str(one.value) for one in settings})


def is_same(shown: Mapping[str, Data], machine_id: str, name: str) -> bool:
    """Returns whether this virtual machine is still that machine (law 4). One without marks is known by its id."""
    instance = str(shown.get("config.instanceUuid") or "").lower()
    marks = marks_of(shown)
    if instance != machine_id.lower() or marks is None:
        return instance == machine_id.lower()
    return name == (marks.name if instance == instance_uuid(marks.name) else shown.get("name"))


def _state(shown: Mapping[str, Data], now: datetime) -> tuple[MachineState, str]:
    power, connection = str(shown.get("runtime.powerState")), str(shown.get("runtime.connectionState"))
    state = _STATES.get(power, MachineState.PENDING)
    made = _moment(shown.get("config.createDate"))
    if power == "poweredOff" and made is not None and -CLOCKS_DIFFER < now - made < _SWITCHED_ON:
        return MachineState.PENDING, "it was made, and is not switched on yet"
    reason = "" if state is MachineState.RUNNING else f"vCenter says {power}"
    if connection not in ("connected", "None"):
        reason = f"vCenter says that it is {connection}"
    return state, reason


def _moment(value: Data) -> datetime | None:
    if not isinstance(value, datetime) or value.year < 2000:  # a date that was never set is in 1970
        return None
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


# -- cloud-init --------------------------------------------------------------------------------------------------------
# Its data is in guestinfo, which the guest reads through VMware's tools (datasource ``VMware``).

USER_DATA_LIMIT: Final = 48 * 1024 - 1  # bytes; in base64 just below the 64 KiB that a guest can read of one value


def seed(spec: MachineSpec) -> dict[str, str]:
    """Returns cloud-init's data as advanced settings. The name of the machine is its host name, and so its node's.

    Raises InvalidArgumentError when the user data is too large; nothing is cut.
    """
    metadata = json.dumps({"instance-id": spec.name, "local-hostname": spec.name})
    found = {"guestinfo.metadata": _base64(metadata.encode()), "guestinfo.metadata.encoding": "base64"}
    if spec.user_data:
        given = spec.user_data.encode()
        if len(given) > USER_DATA_LIMIT:
            raise InvalidArgumentError(
                f"the user data of {spec.name} has {len(given)} bytes, and guestinfo takes {USER_DATA_LIMIT}"
            )
        found |= {"guestinfo.userdata": _base64(given), "guestinfo.userdata.encoding": "base64"}
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# -- clone specification -----------------------------------------------------------------------------------------------

_FULL: Final = "moveAllDiskBackingsAndConsolidate"
_LINKED: Final = "createNewChildDiskBacking"
_FIRST_KEY: Final = -100  # of devices that do not exist yet: any negative numbers


def clone_spec(
    spec: MachineSpec,
    settings: MachineSettings,
    size: Size,
    *,
    template: Template,
    pool: Reference,
    datastore: Reference,
    networks: Sequence[Network],
) -> Data:
    """Returns the specification of a clone with its marks, size, networks and cloud-init data, powered on at once."""
    config = vim.vm.ConfigSpec(
        instanceUuid=instance_uuid(spec.name),
        annotation=f"Made by cloudgraft for the node group {spec.group}. Do not rename or move it.",
        numCPUs=size.cpus,
        memoryMB=size.memory_mib,
        extraConfig=[
            vim.option.OptionValue(key=key, value=value)
            for key, value in {**settings.extra_config, **seed(spec), **marks_for(spec)}.items()
        ],
        deviceChange=[*_disk(template, size, is_linked=settings.linked_clone), *_adapters(template, networks)],
    )
    location = vim.vm.RelocateSpec(
        pool=pool, datastore=datastore, diskMoveType=_LINKED if settings.linked_clone else _FULL
    )
    snapshot = snapshot_of(template, settings.snapshot) if settings.linked_clone else None
    return vim.vm.CloneSpec(location=location, config=config, snapshot=snapshot, powerOn=True, template=False)


def snapshot_of(template: Template, name: str) -> Reference:
    """Returns the snapshot that a linked clone is based on."""
    tree = template.snapshot
    if tree is None:
        raise PreconditionError(f"the template {template.name} has no snapshot: a linked clone needs one. Take one")
    if not name:
        return tree.currentSnapshot
    waiting, found = list(tree.rootSnapshotList or ()), []
    while waiting:
        one = waiting.pop()
        waiting += one.childSnapshotList or ()
        if one.name == name:
            found.append(one.snapshot)
    if len(found) != 1:
        how_many = "no snapshot" if not found else f"{len(found)} snapshots"
        raise InvalidArgumentError(f"the template {template.name} has {how_many} {name!r}; look at machine.snapshot")
    return found[0]


def _disk(template: Template, size: Size, *, is_linked: bool) -> list[Data]:
    """Returns the change that gives the first disk the size of the shape."""
    if size.disk_bytes is None:
        return []
    disks = [one for one in template.devices if isinstance(one, vim.vm.device.VirtualDisk)]
    if not disks:
        raise PreconditionError(f"the template {template.name} has no disk that the shape could give a size")
    disk = disks[0]
    has = disk.capacityInBytes or disk.capacityInKB * 1024
    if size.disk_bytes == has:
        return []
    if size.disk_bytes < has:
        raise InvalidArgumentError(
            f"the disk of the template {template.name} has {has} bytes, and the shape says {size.disk_bytes}: "
            "a disk cannot be made smaller"
        )
    if is_linked:
        raise InvalidArgumentError(
            f"the disk of a linked clone is as large as the template's, {has} bytes: leave `disk` out of the shape"
        )
    larger = vim.vm.device.VirtualDisk(
        key=disk.key,
        backing=disk.backing,
        controllerKey=disk.controllerKey,
        unitNumber=disk.unitNumber,
        capacityInBytes=size.disk_bytes,
        capacityInKB=size.disk_bytes // 1024,
    )
    return [vim.vm.device.VirtualDeviceSpec(operation="edit", device=larger)]


def _adapters(template: Template, networks: Sequence[Network]) -> list[Data]:
    """Returns the changes that replace the template's network adapters, so that each gets its own MAC address."""
    if not networks:
        return []
    old = [one for one in template.devices if isinstance(one, vim.vm.device.VirtualEthernetCard)]
    gone = [vim.vm.device.VirtualDeviceSpec(operation="remove", device=one) for one in old]
    return gone + [
        vim.vm.device.VirtualDeviceSpec(operation="add", device=_adapter(network, _FIRST_KEY - number))
        for number, network in enumerate(networks)
    ]


def _adapter(network: Network, key: int) -> Data:
    return vim.vm.device.VirtualVmxnet3(
        key=key,
        backing=network.backing,
        addressType="generated",
        connectable=vim.vm.device.VirtualDevice.ConnectInfo(
            startConnected=True, allowGuestControl=True, connected=True
        ),
    )
