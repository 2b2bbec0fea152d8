"""Time, as a thing that tests and the demo can hold in their hands."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Seconds since the epoch, for what is written down."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()
