"""Calls a cloud through three commands."""

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions

__all__ = ["ExecDriver", "ExecOptions"]
