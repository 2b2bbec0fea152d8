"""Counts the calls of the service, in its own registry, so that two services in one process do not mix."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.sdk.errors import StatusCode
from cloudgraft.wire.externalgrpc import RPCS

# -- ready reply metrics -----------------------------------------------------------------------------------------------
# Adds the calls that a transport answered itself to those that the service answered, under the same names.


class AnsweredCalls(Protocol):
    """The counts of a transport that answers calls itself."""

    def answered(self) -> Mapping[str, tuple[Sequence[int], float]]:
        """For each call: the number of answers per duration bucket, and the sum of their seconds."""

    def table(self) -> tuple[int, int, int, int]:
        """Hits, misses, replies kept now, and their bytes."""

    def last_call(self) -> float:
        """Time of the last answer, in seconds since the epoch; 0 for never."""


class ReadyReplyMetrics(Collector):
    """Collects the calls of the service and of its transports together."""

    def __init__(self, seconds: Histogram, total: Counter) -> None:
        """``seconds`` by rpc and ``total`` by rpc and code are the service's metrics; they are in no registry."""
        self._seconds = seconds
        self._total = total
        self._transports: list[AnsweredCalls] = []

    def add(self, transport: AnsweredCalls) -> None:
        """Adds the counts of a transport."""
        self._transports.append(transport)

    def last_call(self) -> float:
        """Time of the last answer of any transport."""
        return max((transport.last_call() for transport in self._transports), default=0.0)

    def describe(self) -> Iterable[Metric]:
        """The metrics without values."""
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


# The autoscaler times out after 5 s, and needs well under 1 ms: the buckets separate both from the rest.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class RpcMeter:
    """The metrics of one of the 15 calls, looked up once."""

    seconds: Histogram
    codes: dict[StatusCode, Counter]


class ServiceMetrics:
    """The metrics of the calls and of the providers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        seconds = Histogram(
            "cloudgraft_rpc_duration_seconds",
            "Time from a call's arrival to its answer",
            ["rpc"],
            buckets=BUCKETS,
            registry=None,
        )
        total = Counter("cloudgraft_rpcs", "Calls answered, by status code", ["rpc", "code"], registry=None)
        self._ready = ReadyReplyMetrics(seconds, total)
        self.registry.register(self._ready)
        self._meters = {
            name: RpcMeter(seconds.labels(name), {code: total.labels(name, code.name) for code in StatusCode})
            for name in RPCS
        }
        self.listeners = ListenerMetrics(self.registry)
        self.last_call = 0.0  # of an allowed client, in seconds since the epoch
        last_call = self._gauge(
            "cloudgraft_last_allowed_call_timestamp_seconds",
            "When the last call of an allowed client came; 0 before the first",
        )
        last_call.set_function(self._latest_call)
        self.certificate_expiry = self._gauge(
            "cloudgraft_tls_certificate_expiry_timestamp_seconds", "When the server's certificate ends; 0 without TLS"
        )
        self.transport = self._gauge(
            "cloudgraft_transport_info",
            "1 for the transport that carries the autoscaler's calls: native or grpcio",
            "transport",
        )
        self.late_mutations = Counter(
            "cloudgraft_late_mutations",
            "Changes that ended after their caller had given up",
            ["rpc"],
            registry=self.registry,
        )
        self.trace_spans = Counter(
            "cloudgraft_trace_spans",
            "Spans of traces, by result: sent, failed, or dropped because too many waited",
            ["result"],
            registry=self.registry,
        )
        self.provider_up = self._gauge(
            "cloudgraft_provider_up",
            "1 while a provider answers, 0 while its last known answers are served",
            "provider",
        )
        self.snapshot_age = self._gauge(
            "cloudgraft_snapshot_age_seconds", "Age of the answers that are served for a provider", "provider"
        )

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def seconds_since_call(self) -> float:
        """Seconds since the last call of an allowed client, by whichever transport; very many before the first."""
        return max(0.0, time.time() - self._latest_call())

    def _latest_call(self) -> float:
        return max(self.last_call, self._ready.last_call())

    def add_ready_replies(self, replies: AnsweredCalls) -> None:
        """Counts calls that a transport answers itself like all others."""
        self._ready.add(replies)

    def meter(self, rpc: str) -> RpcMeter:
        """The metrics of that call."""
        return self._meters[rpc]
