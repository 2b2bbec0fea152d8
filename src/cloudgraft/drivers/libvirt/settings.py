"""The ``machine:`` section of a group whose machines libvirt makes."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudgraft.drivers.libvirt.options import Network, amount
from cloudgraft.sdk.errors import InvalidArgumentError

__all__ = ["Boot", "Disk", "MachineSettings"]


class Disk(enum.Enum):
    """How a disk is made from an image."""

    OVERLAY = "overlay"  # what differs from the image: at once and small, but the image must stay as it is
    CLONE = "clone"  # a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A kernel that is on the host, in the place of the one on the disk."""

    kernel: str
    initrd: str = ""
    cmdline: str = ""

    def __post_init__(self) -> None:
        """Refuses what is not on the host."""
        for key, path in {"kernel": self.kernel, "initrd": self.initrd}.items():
            if path and not path.startswith("/"):
                raise InvalidArgumentError(f"boot.{key} must begin with /: it is a file of the host")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """What one group's machines are like."""

    shape: str
    image: str = ""  # the volume that the disk is made from; empty: the cloud's
    disk: Disk = Disk.OVERLAY
    size: str | int = ""  # of the disk; empty: the shape's, else as large as the image
    networks: Sequence[Network] | None = None  # None: the cloud's
    network_config: Mapping[str, object] = field(default_factory=dict)  # cloud-init's; empty: none
    boot: Boot | None = None

    def __post_init__(self) -> None:
        """Refuses what can never work."""
        if not self.shape:
            raise InvalidArgumentError("shape must not be empty")
        if self.size != "":
            amount("size", self.size)
