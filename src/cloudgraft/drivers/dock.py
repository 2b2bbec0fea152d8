"""Exports the driver ``dock``: see :mod:`cloudgraft.dock`."""

from __future__ import annotations

from cloudgraft.dock.driver import DockDriver

__all__ = ["DockDriver"]
