"""The ``machine:`` section of a group whose machines Proxmox makes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["DRIVE", "MachineSettings"]

DRIVE: Final = re.compile(r"ide[0-3]|sata[0-5]|scsi([12]?[0-9]|30)|virtio(1[0-5]|[0-9])")  # as Proxmox names them
_CD: Final = re.compile(r"(ide|sata|scsi)[0-9]+")
_BRIDGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_MODELS: Final = ("virtio", "e1000", "e1000e", "rtl8139", "vmxnet3")
_VLANS: Final = range(1, 4095)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """What one group's machines are like."""

    shape: str
    template: int | str  # its VMID or its name; templates of one name on several nodes count as one
    full_clone: bool = False  # True: a copy; else what differs from the template, which is made at once
    storage: str = ""  # for the disk of a full clone; empty: the cloud's
    bridge: str = ""  # for net0, such as vmbr0; empty: the template's
    vlan: int | None = None
    model: str = "virtio"  # of the network card, when bridge is given
    disk: str = ""  # which one grows to the shape's size, such as scsi0; empty: the one that is booted from
    seed_drive: str = "ide2"  # where the CD with user data is, unless the template has a cloud-init drive

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if not self.shape:
            raise InvalidArgumentError("shape must not be empty")
        if isinstance(self.template, bool) or self.template in ("", 0):
            raise InvalidArgumentError("template must be the VMID or the name of a template")
        if self.storage and not self.full_clone:
            raise InvalidArgumentError("storage is for full clones only: say fullClone: true, or leave it out")
        if self.bridge and not _BRIDGE.fullmatch(self.bridge):
            raise InvalidArgumentError(f"bridge: {self.bridge!r} is no name of a bridge, such as vmbr0")
        if self.vlan is not None and (self.vlan not in _VLANS or not self.bridge):
            raise InvalidArgumentError("vlan must be from 1 to 4094, and needs a bridge")
        if self.model not in _MODELS:
            raise InvalidArgumentError(f"model must be one of {', '.join(_MODELS)}")
        if self.disk and not DRIVE.fullmatch(self.disk):
            raise InvalidArgumentError(f"disk: {self.disk!r} is no drive of Proxmox, such as scsi0")
        if not DRIVE.fullmatch(self.seed_drive) or not _CD.fullmatch(self.seed_drive):
            raise InvalidArgumentError(f"seedDrive: {self.seed_drive!r} cannot be a CD; take one such as ide2 or sata0")
