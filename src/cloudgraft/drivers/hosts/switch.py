"""How machines that are there anyway are switched: by commands, or by a controller of each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol, TypeVar

from cloudgraft.drivers.hosts.assignments import Assignment
from cloudgraft.drivers.hosts.host import Host
from cloudgraft.sdk.driver import MachineSpec

__all__ = ["PowerState", "Switch"]

H_contra = TypeVar("H_contra", bound=Host, contravariant=True)


class PowerState(enum.Enum):
    """What a machine's controller says of it."""

    ON = "on"
    OFF = "off"


class Switch(Protocol[H_contra]):
    """What a driver of such machines is made of. Errors are those of the SDK, and true about what was done."""

    @property
    def can_tell(self) -> bool:
        """Whether the state can be asked for."""

    @property
    def longest_on(self) -> timedelta:
        """For which switching on may take at most."""

    def start(self) -> None:
        """Looks whether all that is needed is there."""

    async def close(self) -> None:
        """Ends what runs."""

    def notes(self, spec: MachineSpec) -> Mapping[str, str]:
        """What must be known when the machine is given back; it is written down before anything is done."""

    async def on(self, host: H_contra, spec: MachineSpec, *, is_first: bool) -> None:
        """Switches it on. ``is_first``: no earlier call can have done it, so that one that is on is somebody's."""

    async def off(self, host: H_contra, assignment: Assignment) -> bool:
        """Switches it off, and tells whether it was told so now: it may be on its way already."""

    async def state(self, host: H_contra) -> PowerState:
        """Whether it is on."""

    async def free_state(self, host: H_contra) -> PowerState:
        """The same of one that may be given out; raises when it is not fit for that."""

    async def clear(self, host: H_contra, assignment: Assignment) -> None:
        """Takes away what was put in for this machine. It is off, or was never switched on."""
