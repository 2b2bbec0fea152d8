"""Adds the calls that a transport answered by itself to those that the service answered, under the same names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["AnsweredCalls", "ReadyReplyMetrics"]


class AnsweredCalls(Protocol):
    """What a transport counts by itself."""

    def answered(self) -> Mapping[str, tuple[Sequence[int], float]]:
        """For each call: how many answers took how long, bucket by bucket, and the sum of their seconds."""

    def table(self) -> tuple[int, int, int, int]:
        """Replies found, not found, kept now, and the bytes that those take."""

    def last_call(self) -> float:
        """When the last one was answered, in seconds since the epoch; 0 for never."""


class ReadyReplyMetrics(Collector):
    """Shows the calls of the service and of its transports as one."""

    def __init__(self, seconds: Histogram, total: Counter) -> None:
        """``seconds`` by rpc and ``total`` by rpc and code are the service's own; they are in no registry."""
        self._seconds = seconds
        self._total = total
        self._transports: list[AnsweredCalls] = []

    def add(self, transport: AnsweredCalls) -> None:
        """Counts what this one answers."""
        self._transports.append(transport)

    def last_call(self) -> float:
        """When one of them answered last."""
        return max((transport.last_call() for transport in self._transports), default=0.0)

    def describe(self) -> Iterable[Metric]:
        """The names, without counting anything."""
        return [*self._seconds.describe(), *self._total.describe()]

    def collect(self) -> Iterable[Metric]:
        """All calls."""
        if not self._transports:
            yield from self._seconds.collect()
            yield from self._total.collect()
            return
        answered = [transport.answered() for transport in self._transports]
        yield from (self._with_seconds(family, answered) for family in self._seconds.collect())
        yield from (self._with_total(family, answered) for family in self._total.collect())
        yield from self._tables()

    def _with_seconds(self, family: Metric, answered: Sequence[Mapping[str, tuple[Sequence[int], float]]]) -> Metric:
        buckets: dict[str, list[tuple[str, float]]] = {}
        sums: dict[str, float] = {}
        for sample in family.samples:
            rpc = sample.labels["rpc"]
            if sample.name.endswith("_bucket"):
                buckets.setdefault(rpc, []).append((sample.labels["le"], sample.value))
            elif sample.name.endswith("_sum"):
                sums[rpc] = sample.value
        merged = HistogramMetricFamily(family.name, family.documentation, labels=["rpc"])
        for rpc, own in buckets.items():
            others = [counts[rpc] for counts in answered if rpc in counts]
            added = [sum(column) for column in zip(*(accumulate(counts) for counts, _ in others), strict=True)]
            both = [(bound, value + more) for (bound, value), more in zip(own, added or [0] * len(own), strict=True)]
            merged.add_metric([rpc], both, sums[rpc] + sum(seconds for _, seconds in others))
        return merged

    def _with_total(self, family: Metric, answered: Sequence[Mapping[str, tuple[Sequence[int], float]]]) -> Metric:
        merged = CounterMetricFamily(family.name, family.documentation, labels=["rpc", "code"])
        for sample in family.samples:
            if sample.name.endswith("_total"):
                rpc, code = sample.labels["rpc"], sample.labels["code"]
                more = sum(sum(counts[rpc][0]) for counts in answered if rpc in counts) if code == "OK" else 0
                merged.add_metric([rpc, code], sample.value + more)
        return merged

    def _tables(self) -> Iterable[Metric]:
        tables = [transport.table() for transport in self._transports]
        found, missed, entries, size = (sum(column) for column in zip(*tables, strict=True))
        lookups = CounterMetricFamily(
            "cloudgraft_ready_reply_lookups", "Reads that a ready reply was sought for", labels=["result"]
        )
        lookups.add_metric(["hit"], found)
        lookups.add_metric(["miss"], missed)
        yield lookups
        yield GaugeMetricFamily("cloudgraft_ready_replies", "Replies that are ready to be sent", value=entries)
        yield GaugeMetricFamily("cloudgraft_ready_reply_bytes", "Memory that ready replies take", value=size)
