"""The one call that makes a machine, as data: nothing here talks to a vCenter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cloudgraft.drivers.vsphere.api import Data, Reference, vim
from cloudgraft.drivers.vsphere.inventory import Network, Template
from cloudgraft.drivers.vsphere.marks import instance_uuid, marks_for
from cloudgraft.drivers.vsphere.options import MachineSettings, Size
from cloudgraft.drivers.vsphere.seed import seed
from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError

__all__ = ["clone_spec"]

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
    """A clone with its name, marks, size, networks and cloud-init data, which is switched on at once."""
    config = vim.vm.ConfigSpec(
        instanceUuid=instance_uuid(spec.name),
        annotation=f"Made by cloudgraft for the node group {spec.group}. Do not rename or move it.",
        numCPUs=size.cpus,
        memoryMB=size.memory_mib,
        extraConfig=_options({**settings.extra_config, **seed(spec), **marks_for(spec)}),
        deviceChange=[*_disk(template, size, is_linked=settings.linked_clone), *_adapters(template, networks)],
    )
    location = vim.vm.RelocateSpec(
        pool=pool, datastore=datastore, diskMoveType=_LINKED if settings.linked_clone else _FULL
    )
    snapshot = snapshot_of(template, settings.snapshot) if settings.linked_clone else None
    return vim.vm.CloneSpec(location=location, config=config, snapshot=snapshot, powerOn=True, template=False)


def _options(settings: Mapping[str, str]) -> list[Data]:
    return [vim.option.OptionValue(key=key, value=value) for key, value in settings.items()]


def snapshot_of(template: Template, name: str) -> Reference:
    """The snapshot that a linked clone stands on."""
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
    """The first disk, made as large as the shape says."""
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
    """Network adapters of our own in the place of the template's, so that each gets an address of its own."""
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
