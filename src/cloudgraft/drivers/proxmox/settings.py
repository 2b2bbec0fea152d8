"""Defines the ``machine:`` section of node groups in Proxmox VE."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cloudgraft.sdk.flaws import Flaws

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
        """Refuses invalid values."""
        flaws = Flaws()
        flaws.expect(self.shape, "shape", "must not be empty")
        is_template = not isinstance(self.template, bool) and self.template not in ("", 0)
        flaws.expect(is_template, "template", "must be the VMID or the name of a template")
        is_used = not self.storage or self.full_clone
        flaws.expect(is_used, "storage", "is for full clones only: say fullClone: true, or leave it out")
        is_bridge = not self.bridge or _BRIDGE.fullmatch(self.bridge)
        flaws.expect(is_bridge, "bridge", f"{self.bridge!r} is no name of a bridge, such as vmbr0")
        is_vlan = self.vlan is None or (self.vlan in _VLANS and self.bridge)
        flaws.expect(is_vlan, "vlan", "must be from 1 to 4094, and needs a bridge")
        flaws.expect(self.model in _MODELS, "model", f"must be one of {', '.join(_MODELS)}")
        is_drive = not self.disk or DRIVE.fullmatch(self.disk)
        flaws.expect(is_drive, "disk", f"{self.disk!r} is no drive of Proxmox, such as scsi0")
        is_cd = DRIVE.fullmatch(self.seed_drive) and _CD.fullmatch(self.seed_drive)
        flaws.expect(is_cd, "seedDrive", f"{self.seed_drive!r} cannot be a CD; take one such as ide2 or sata0")
        flaws.raise_any()
