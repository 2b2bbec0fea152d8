"""Planted faults: each reverts one protection of the code, to show that the simulation would find its loss."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.simulation.planted import calls, deciding, findings, journal, seeing
from tests.simulation.planted.fault import FAULTS, Planted, table

__all__ = ["FAULTS", "Planted", "planted", "table"]

REGISTERED = (calls, deciding, findings, journal, seeing)  # importing them fills the table


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """One fault is there for a while; none for an empty name."""
    if not name:
        yield
        return
    with FAULTS[name].patch():
        yield
