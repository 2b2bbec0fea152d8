"""Virtual machines of one host with libvirt and QEMU or KVM."""

from cloudgraft.drivers.libvirt.options import LibvirtOptions, Network, ShapeOptions
from cloudgraft.drivers.libvirt.settings import MachineSettings

__all__ = ["LibvirtOptions", "MachineSettings", "Network", "ShapeOptions"]  # the driver itself needs libvirt-python
