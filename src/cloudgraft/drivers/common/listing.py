"""Corrects a cloud's list for wrong clocks, and for deleted machines that it still shows."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.sdk.driver import Machine, MachineState

# -- ages --------------------------------------------------------------------------------------------------------------
# The age of something by a timestamp on it, which a wrong clock may have written.

CLOCKS_DIFFER: Final = timedelta(minutes=5)  # by which clocks may differ


def age_of(moment: datetime) -> timedelta:
    """Returns the time since then. A moment in the future counts as very old: it would stay young for years."""
    age = datetime.now(UTC) - moment
    return age if age > -CLOCKS_DIFFER else timedelta.max


def is_younger(moment: datetime, than: timedelta) -> bool:
    """Returns whether its age is below ``than``."""
    return age_of(moment) < than


# -- deletions ---------------------------------------------------------------------------------------------------------
# Deletions that a cloud has accepted recently: some clouds still list such a machine as if it were running.


class RecentDeletions:
    """Remembers deletions for a while. For clouds that never reuse an id. Thread-safe."""

    def __init__(self, believed_for: timedelta) -> None:
        self._seconds = believed_for.total_seconds()
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}  # by machine id

    def add(self, machine_id: str) -> None:
        """Records that the cloud has accepted the deletion."""
        now = time.monotonic()
        with self._lock:
            self._until = {known: until for known, until in self._until.items() if until > now}
            self._until[machine_id] = now + self._seconds

    def shown(self, machine: Machine) -> Machine:
        """Returns the machine as a list should show it."""
        with self._lock:
            is_going = self._until.get(machine.machine_id, 0.0) > time.monotonic()
        return replace(machine, state=MachineState.DELETING, reason="", failure="") if is_going else machine
