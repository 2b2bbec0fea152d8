"""Exports the driver ``simulated``: see :mod:`cloudgraft.simcloud`."""

from __future__ import annotations

from cloudgraft.simcloud.driver import SimulatedDriver

__all__ = ["SimulatedDriver"]
