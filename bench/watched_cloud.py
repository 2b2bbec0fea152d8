"""A simulated cloud that notes when its calls begin and end."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloudgraft.sdk.driver import MachineSpec
from cloudgraft.simcloud.chaos import Chaos, Faults, Span
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.http.json_forms import order_for
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.outcomes import Operation, Outcome
from cloudgraft.simcloud.records import Order, Page, SimMachine


class WatchedCloud(SimulatedCloud):
    """A create is under way from its arrival, before the time that it takes, until it is done."""

    def __init__(self, options: SimulatedOptions) -> None:
        super().__init__(options)
        self._watch = threading.Lock()
        self._begun: list[float] = []
        self._passes: list[float] = []
        self._under_way = self._most = 0

    def fill(self, machines: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Makes machines that nobody asked for."""
        for name, tags in machines:
            settings = {"shape": "small"}
            spec = MachineSpec(name=name, group="general-purpose", settings=settings, tags=tags)
            super().create(order_for(spec, ""))

    def outcome(self, operation: Operation) -> Outcome:
        """Notes the arrival of a create."""
        if operation is Operation.CREATE:
            with self._watch:
                self._begun.append(time.monotonic())
                self._under_way += 1
                self._most = max(self._most, self._under_way)
        return super().outcome(operation)

    def create(self, order: Order) -> tuple[SimMachine, bool]:
        """Notes the end of one."""
        try:
            return super().create(order)
        finally:
            with self._watch:
                self._under_way -= 1

    def page(self, limit: int, cursor: str = "") -> Page[SimMachine]:
        """Notes the beginning of a pass."""
        if not cursor:
            with self._watch:
                self._passes.append(time.monotonic())
        return super().page(limit, cursor)

    def told(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """How calls came since the last time; ``latency`` is for the creates from now on, in milliseconds."""
        if "latency" in given:
            self.set_chaos(Chaos(create=Faults(latency=Span(given["latency"] / 1000))))
        with self._watch:
            begun, self._begun = self._begun, []
            passes, self._passes = self._passes, []
            most, self._most = self._most, self._under_way
        gaps = [after - before for before, after in itertools.pairwise(passes)]
        return {
            "creates": len(begun),
            "most_under_way": most,
            "most_in_a_second": most_in_a_second(begun),
            "passes": len(passes),
            "shortest_pause": min(gaps, default=0.0),
        }


def most_in_a_second(times: Sequence[float]) -> int:
    """The most of these moments, in their order, within any second."""
    most = first = 0
    for last, moment in enumerate(times):
        while moment - times[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most
