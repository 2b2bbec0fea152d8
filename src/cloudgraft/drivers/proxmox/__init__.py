"""Creates virtual machines in a Proxmox VE cluster."""

from cloudgraft.drivers.proxmox.options import ProxmoxOptions, ShapeOptions
from cloudgraft.drivers.proxmox.settings import MachineSettings

__all__ = ["MachineSettings", "ProxmoxOptions", "ShapeOptions"]  # the driver itself needs proxmoxer
