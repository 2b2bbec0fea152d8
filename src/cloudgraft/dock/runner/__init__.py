"""Connects a driver to its hub, and keeps it connected."""

from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.protocol.messages import MachineClass, Secret
from cloudgraft.dock.runner.adapter import (
    ClassData,
    DockedDriver,
    Driver2018,
    MachineClassMeta,
    MachineError,
    SecretMeta,
    current_class,
    from_2018,
)
from cloudgraft.dock.runner.options import RunnerOptions, RunnerSettings, Speech, Tls
from cloudgraft.dock.runner.runner import DockRunner, run, run_until_told

__all__ = [
    "ClassData",
    "Code",
    "DockRunner",
    "DockedDriver",
    "Driver2018",
    "MachineClass",
    "MachineClassMeta",
    "MachineError",
    "RunnerOptions",
    "RunnerSettings",
    "Secret",
    "SecretMeta",
    "Speech",
    "Tls",
    "current_class",
    "from_2018",
    "run",
    "run_until_told",
]
