"""Creates virtual machines in VMware vSphere, cloned from a template through vCenter."""

from cloudgraft.drivers.vsphere.options import MachineSettings, ShapeOptions, VsphereOptions

__all__ = ["MachineSettings", "ShapeOptions", "VsphereOptions"]  # the driver itself needs pyvmomi
