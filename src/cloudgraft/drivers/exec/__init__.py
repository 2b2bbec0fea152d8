"""Calls a cloud through three commands."""

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions

__all__ = ["ExecDriver", "ExecOptions"]  # docs/how-to/put-a-cloud-behind-three-scripts.md imports them from here
