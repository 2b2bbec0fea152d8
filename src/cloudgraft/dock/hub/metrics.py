"""Exports the dock's metrics for ``/metrics``. Scrapes may come from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cloudgraft.dock.hub.hub import Hub
from cloudgraft.dock.hub.settings import DriverReport

_DRIVER: Final = ("kind", "api_version")
# name -> (help text, labels). Gauges, except those in _COUNTERS.
_FAMILIES: Final = {
    "cloudgraft_dock_drivers": ("Drivers that are connected, by version of the protocol", ("protocol",)),
    "cloudgraft_dock_driver_info": (
        "1 for each driver that is connected",
        (*_DRIVER, "protocol", "name", "version", "state"),
    ),
    "cloudgraft_dock_driver_up": (
        "1 while a driver that a cloud of this process needs is connected, 0 while it is away",
        _DRIVER,
    ),
    "cloudgraft_dock_connected_seconds": ("For how long the driver has been connected", _DRIVER),
    "cloudgraft_dock_silence_seconds": ("Time since the driver's last message", _DRIVER),
    "cloudgraft_dock_in_flight": ("Operations that the driver works on", _DRIVER),
    "cloudgraft_dock_queued": ("Operations that wait to be sent to the driver", _DRIVER),
    "cloudgraft_dock_queue_seconds": ("For how long the oldest of them has been waiting", _DRIVER),
    "cloudgraft_dock_operations": (
        "Operations of this connection that ended, by result: ok or failed",
        (*_DRIVER, "result"),
    ),
    "cloudgraft_dock_malformed": ("Messages of this connection that made no sense", _DRIVER),
    "cloudgraft_dock_events": (
        "What happened since the start: drivers that were connected, refused, gone, late results, malformed messages",
        ("what",),
    ),
}
_COUNTERS: Final = frozenset({"cloudgraft_dock_operations", "cloudgraft_dock_malformed", "cloudgraft_dock_events"})
_EVENTS: Final = ("connected", "refused", "gone", "late", "malformed")

Sample = tuple[str, tuple[str, ...], float]  # a name, the values of its labels, and the value


class DockMetrics(Collector):
    """The metrics of one hub, in the registry of the service."""

    def __init__(self, hub: Hub, registry: CollectorRegistry) -> None:
        self._hub = hub
        registry.register(self)

    @staticmethod
    def families() -> list[Metric]:
        """All metric families, without values: for the registry and the documentation."""
        return [
            (CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily)(name, text, labels=labels)
            for name, (text, labels) in _FAMILIES.items()
        ]

    def describe(self) -> Iterable[Metric]:
        """All metric families, as prometheus_client requires."""
        return self.families()

    def collect(self) -> Iterable[Metric]:
        """All metric families with current values."""
        families = {family.name: family for family in self.families()}
        reports, counts = self._hub.drivers(), self._hub.counts()
        samples = [
            *_in_all(reports, counts),
            *_expected(self._hub),
            *(sample for one in reports for sample in _of(one)),
        ]
        for name, labels, value in samples:
            family = families[name]
            if isinstance(family, CounterMetricFamily | GaugeMetricFamily):
                family.add_metric(labels, value)
        return families.values()


def _in_all(reports: Sequence[DriverReport], counts: Mapping[str, int]) -> Iterator[Sample]:
    for what in _EVENTS:
        yield "cloudgraft_dock_events", (what,), counts.get(what, 0)
    for protocol in ("v0", "v1"):
        yield "cloudgraft_dock_drivers", (protocol,), sum(one.info.protocol == protocol for one in reports)


def _expected(hub: Hub) -> Iterator[Sample]:
    for key, is_up in hub.expected().items():
        yield "cloudgraft_dock_driver_up", (key.kind, key.api_version), is_up


def _of(report: DriverReport) -> Iterator[Sample]:
    info, driver = report.info, (report.info.key.kind, report.info.key.api_version)
    yield "cloudgraft_dock_driver_info", (*driver, info.protocol, info.name, info.version, report.state), 1
    connected = (datetime.now(UTC) - report.since).total_seconds()
    yield "cloudgraft_dock_connected_seconds", driver, max(0.0, connected)
    yield "cloudgraft_dock_silence_seconds", driver, report.silent_for.total_seconds()
    yield "cloudgraft_dock_in_flight", driver, report.in_flight
    yield "cloudgraft_dock_queued", driver, report.queued
    yield "cloudgraft_dock_queue_seconds", driver, report.queued_for.total_seconds()
    yield "cloudgraft_dock_operations", (*driver, "ok"), report.succeeded
    yield "cloudgraft_dock_operations", (*driver, "failed"), report.failed
    yield "cloudgraft_dock_malformed", driver, report.malformed
