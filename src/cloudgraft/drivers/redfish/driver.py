"""Implements the driver ``redfish``: create powers a host on through its controller, delete powers it off.

A create is several requests to one controller: media in, what to boot from, power on. Before the first of them it is
written down which host the machine has and whether media are put in (law 2); a create that is repeated, and a delete,
find it there. What fails before the power is switched leaves the host off: it is given back, with its media out. What
nobody knows after that keeps the host, until its controller says whether it is on.

A delete asks the host to shut down, and takes its power away when it has not in time. The host is free when it is off
and its media are out. A list asks the controllers of the hosts that are taken, one request each, so many at once as
the options say: every host is a cloud of its own, and nobody can be asked for all of them. One that does not answer
leaves its machine as it was, with the reason.
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

__all__ = ["RedfishDriver"]

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
