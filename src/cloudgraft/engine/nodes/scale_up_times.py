"""Measures the time from a machine's request until its node is ready, or until it runs where there is no cluster."""

from __future__ import annotations

from typing import Final

from cloudgraft.engine.durations import Durations
from cloudgraft.engine.machines.states import was_found
from cloudgraft.store.records import MachineRecord, State

_BOUNDS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1800.0)
_ORDERED: Final = frozenset({State.REQUESTED, State.CREATING})


class ScaleUpTimes:
    """The scale-up times of one cloud, by group.

    Measures the machines that this process saw on their way. A machine that was requested before a restart is measured
    if it changes its state once more before it runs.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, Durations] = {}
        self._awaited: set[str] = set()

    def note(self, record: MachineRecord) -> None:
        """Takes a changed record."""
        if record.state in _ORDERED or (record.state is State.BOOTING and not was_found(record)):
            self._awaited.add(record.name)
        elif record.state is not State.RUNNING:
            self._awaited.discard(record.name)

    def is_awaited(self, record: MachineRecord) -> bool:
        """Whether the machine runs and was not measured yet."""
        return record.state is State.RUNNING and record.name in self._awaited

    def arrived(self, record: MachineRecord, now: float) -> None:
        """Measures a machine that is ready."""
        self._awaited.discard(record.name)
        self.of_group(record.group).add(max(0.0, now - record.requested_at))

    def of_group(self, group: str) -> Durations:
        """The times of one group, which begin empty: Prometheus sees no increase in a counter that begins with 1."""
        return self._by_group.setdefault(group, Durations(_BOUNDS))
