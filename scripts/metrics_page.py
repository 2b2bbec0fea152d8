"""Writes docs/reference/metrics.md from the metrics that the code registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from cloudgraft.discovery.api.app import PeriodicWork
from cloudgraft.dock.hub.metrics import DockMetrics
from cloudgraft.engine.reporting.metrics import EngineMetrics
from cloudgraft.service.metrics import ServiceMetrics

_TITLE = """# Metrics

On the second port (`server.ops`), under `/metrics`. Counters carry the suffix `_total` there, and histograms have
`_bucket`, `_sum` and `_count`. The node manager and discovery serve theirs under `/metrics` of their own port, to any
client that they know. Metrics of groups, clouds and guards come from the leader only.

[Watch cloudgraft](../how-to/watch-cloudgraft.md) says how to scrape them, and has alerts and a dashboard.

| name | kind | labels | what it tells |
|---|---|---|---|
"""
_END = """
`cloudgraft_events` counts by the kinds of [events](events.md), `cloudgraft_machines` by the
[states](machine-states.md) of machines.
"""


@dataclass(frozen=True)
class ExportedMetric:
    """A metric as a scrape shows it, without the suffixes of counters and histograms."""

    name: str
    kind: str  # gauge, counter or histogram
    labels: tuple[str, ...]
    text: str


def exported_metrics() -> list[ExportedMetric]:
    """All metrics of server, engine, dock and discovery, by name."""
    discovery = CollectorRegistry()
    core: Any = None  # nothing runs: it only makes its gauges
    PeriodicWork(core, discovery)
    found = [_exported(family, {}) for family in (*EngineMetrics.families(), *DockMetrics.families())]
    for registry in (ServiceMetrics().registry, discovery):
        labels = _declared_labels(registry)
        found += [_exported(family, labels) for family in registry.collect()]
    return sorted(found, key=lambda metric: metric.name)


def metrics_page() -> str:
    """The page."""
    rows = [
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.text} |\n"
        for one in exported_metrics()
    ]
    return "".join([_TITLE, *rows, _END])


def _declared_labels(registry: CollectorRegistry) -> Mapping[str, tuple[str, ...]]:
    """The labels by metric; the library keeps them in attributes that it does not document."""
    collectors: Iterable[object] = getattr(registry, "_collector_to_names")  # noqa: B009 - private
    return {getattr(one, "_name"): getattr(one, "_labelnames") for one in collectors if hasattr(one, "_labelnames")}  # noqa: B009


def _exported(family: Metric, declared: Mapping[str, tuple[str, ...]]) -> ExportedMetric:
    labels: tuple[str, ...] = declared.get(family.name, ()) or tuple(getattr(family, "_labelnames", None) or ())
    if not labels and family.samples:
        labels = tuple(label for label in family.samples[0].labels if label != "le")
    return ExportedMetric(name=family.name, kind=family.type, labels=tuple(labels), text=family.documentation)
