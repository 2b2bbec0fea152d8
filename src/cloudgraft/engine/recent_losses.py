"""Which machines lists have missed lately, and since when.

A machine that is taken for gone because lists miss it, and for no other reason, is an event of kind `loss`, written
with its new state. A restart goes on from these events: losses of a few machines at a time add up as if there had been
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from cloudgraft.engine.events import about
from cloudgraft.store.records import Event, MachineRecord

__all__ = ["LOSS", "Losses"]

LOSS: Final = "loss"  # the kind of the events that count


class Losses:
    """By cloud and name: when lists began to miss a machine. It outlives a worker whose cloud has a new driver."""

    def __init__(self) -> None:
        self._since: dict[str, Mapping[str, float]] = {}

    def load(self, events: Iterable[Event], now: float) -> None:
        """Takes what the journal has, in place of what was known before."""
        found: dict[str, dict[str, float]] = {}
        for event in events:
            since = event.data.get("since")
            at = since if isinstance(since, int | float) else event.at
            found.setdefault(event.cloud, {})[event.machine] = min(at, now)
        self._since = dict(found)

    def of(self, cloud: str) -> Mapping[str, float]:
        """Those of one cloud."""
        return self._since.get(cloud, {})

    def put(self, cloud: str, since: Mapping[str, float]) -> None:
        """Replaces those of one cloud."""
        self._since[cloud] = since

    def told(self, record: MachineRecord, now: float) -> Event:
        """The event for a machine that is taken for gone."""
        why = "lists miss it, and nothing else tells that it is gone; it counts for engine.massAbsence"
        return about(record, now, why, kind=LOSS, since=self.of(record.cloud)[record.name])
