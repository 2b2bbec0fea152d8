"""Switches a fixed list of machines on and off."""

from cloudgraft.drivers.static.driver import StaticDriver
from cloudgraft.drivers.static.options import Host, StaticOptions

__all__ = ["Host", "StaticDriver", "StaticOptions"]
