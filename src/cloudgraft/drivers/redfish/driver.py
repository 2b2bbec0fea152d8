"""Implements the driver ``redfish``: create powers a host on through its controller, delete powers it off.

A create sends several requests to one controller: insert media, set the boot device, power on. Before the first one the
driver stores which host the machine has and whether media are inserted (law 2), for a repeated create and a delete. A
failure before power-on leaves the host off: its media are ejected, and it is released. After an unknown outcome the
machine keeps the host, until its controller reports whether it is on.

A delete asks the host to shut down, and forces power off when that takes too long. The host is free when it is off and
its media are ejected. A list asks the controllers of the assigned hosts, one request each, with the concurrency of the
options: no single endpoint knows all hosts. If a controller does not answer, its machine keeps its state, with the
reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.drivers.common.section import read_section
from cloudgraft.drivers.hosts.driver import HostsDriver
from cloudgraft.drivers.hosts.inventory import Inventory
from cloudgraft.drivers.hosts.switch import Times
from cloudgraft.drivers.redfish.bmc import Seen
from cloudgraft.drivers.redfish.options import MachineSettings, RedfishHost, RedfishOptions
from cloudgraft.drivers.redfish.switch import Controllers, declared_shape, seen_shape
from cloudgraft.sdk.driver import MachineSpec, Shape
from cloudgraft.sdk.errors import CloudgraftError, InvalidArgumentError

_TOLD_AGAIN: Final = timedelta(seconds=10)  # after which one whose power was taken away, and is on, is told again


class RedfishDriver(HostsDriver[RedfishHost]):
    """Your own servers, switched through their controllers."""

    Options = RedfishOptions
    MachineSettings = MachineSettings

    def __init__(self, options: RedfishOptions) -> None:
        """Reads the inventory; raises InvalidArgumentError when it is invalid. No controller is asked."""
        self.traits = options.traits()
        self._options = options
        self._controllers = Controllers(options)
        self._known_of: dict[str, Seen | str] = {}  # what each host's controller last told
        super().__init__(
            Inventory(options.source()),
            options.state_file or Path("redfish-hosts.json"),
            self._controllers,
            Times(
                power_on=options.power_on_time,
                power_off=max(options.graceful_time, _TOLD_AGAIN),
                rise=options.power_on_time,
            ),
        )

    async def shapes(self) -> Sequence[Shape]:
        """Those of the options, and those that hosts have and of which their controllers tell what they hold."""
        hosts = await asyncio.to_thread(self._inventory.current)
        shapes = [declared_shape(name, options) for name, options in self._options.shapes.items()]
        undeclared = [host for host in hosts.values() if host.shape and host.shape not in self._options.shapes]
        await asyncio.gather(*(self._ask(host) for host in undeclared))
        names = dict.fromkeys(host.shape for host in undeclared)
        return shapes + [
            seen_shape(name, {host.id: self._known_of[host.id] for host in undeclared if host.shape == name})
            for name in names
        ]

    async def _ask(self, host: RedfishHost) -> None:
        try:
            self._known_of[host.id] = await self._controllers.look(host)
        except CloudgraftError as error:
            if not isinstance(self._known_of.get(host.id), Seen):
                self._known_of[host.id] = error.message

    def _select(self, spec: MachineSpec) -> Mapping[str, str]:
        settings = read_section(MachineSettings, spec.settings)
        if spec.user_data and not self._options.seed_url:
            raise InvalidArgumentError(
                "user data cannot be given to a host without seedDirectory and seedUrl: say them, or leave out join"
            )
        shape = settings.shape
        if shape and not any(host.shape == shape for host in self._hosts.values()):
            raise InvalidArgumentError(f"machine.shape: no host is of the shape {shape!r}")
        return settings.select

    def _is_fit(self, host: RedfishHost, spec: MachineSpec) -> bool:
        return spec.settings.get("shape") in (None, "", host.shape)
