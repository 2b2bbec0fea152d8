"""A fixed list of machines that are switched by commands."""

from __future__ import annotations

from pathlib import Path

from cloudgraft.drivers.hosts.driver import HostsDriver
from cloudgraft.drivers.hosts.inventory import Inventory
from cloudgraft.drivers.hosts.showing import Times
from cloudgraft.drivers.static.options import Host, MachineSettings, StaticOptions
from cloudgraft.drivers.static.power import Power

__all__ = ["StaticDriver"]


class StaticDriver(HostsDriver[Host]):
    """Machines that you own, switched on and off by commands of yours."""

    Options = StaticOptions
    MachineSettings = MachineSettings

    def __init__(self, options: StaticOptions) -> None:
        """Reads the inventory; raises InvalidArgumentError when it makes no sense."""
        self.traits = options.traits()
        super().__init__(
            Inventory(options.source()),
            options.state_file or Path("static-machines.json"),
            Power(options),
            Times(power_on=options.power_on_time, power_off=options.power_off_time),
        )
