"""Creates virtual machines on one host with libvirt and QEMU or KVM."""

from cloudgraft.drivers.libvirt.options import LibvirtOptions, MachineSettings, Network, ShapeOptions

__all__ = ["LibvirtOptions", "MachineSettings", "Network", "ShapeOptions"]  # the driver itself needs libvirt-python
