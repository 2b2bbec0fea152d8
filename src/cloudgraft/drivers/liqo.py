"""Exports the driver ``liqo``: see :mod:`cloudgraft.liqo`."""

from __future__ import annotations

from cloudgraft.liqo.driver import LiqoDriver

__all__ = ["LiqoDriver"]
