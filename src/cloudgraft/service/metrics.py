"""Counters of the service, in a registry of their own so that two services in one process do not mix."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cloudgraft.net.metrics import ListenerMetrics
from cloudgraft.sdk.errors import StatusCode
from cloudgraft.service.ready_reply_metrics import AnsweredCalls, ReadyReplyMetrics
from cloudgraft.wire.externalgrpc import RPCS

# The autoscaler gives up after 5 s, and needs well under 1 ms: the buckets tell both from the rest.
BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class RpcMeter:
    """The metrics of one of the 15 calls, looked up once."""

    seconds: Histogram
    codes: dict[StatusCode, Counter]


class ServiceMetrics:
    """What ``/metrics`` shows of the calls and of the providers behind them."""

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
        self.last_call = 0.0  # of a client that may call, in seconds since the epoch
        Gauge(
            "cloudgraft_last_allowed_call_timestamp_seconds",
            "When the last call of an allowed client came; 0 before the first",
            registry=self.registry,
        ).set_function(lambda: max(self.last_call, self._ready.last_call()))
        self.certificate_expiry = Gauge(
            "cloudgraft_tls_certificate_expiry_timestamp_seconds",
            "When the server's certificate ends; 0 without TLS",
            registry=self.registry,
        )
        self.transport = Gauge(
            "cloudgraft_transport_info",
            "1 for the transport that carries the autoscaler's calls: native or grpcio",
            ["transport"],
            registry=self.registry,
        )
        self.late_mutations = Counter(
            "cloudgraft_late_mutations",
            "Changes that ended after their caller had given up",
            ["rpc"],
            registry=self.registry,
        )
        self.provider_up = Gauge(
            "cloudgraft_provider_up",
            "1 while a provider answers, 0 while its last known answers are served",
            ["provider"],
            registry=self.registry,
        )
        self.snapshot_age = Gauge(
            "cloudgraft_snapshot_age_seconds",
            "Age of the answers that are served for a provider",
            ["provider"],
            registry=self.registry,
        )

    def add_ready_replies(self, replies: AnsweredCalls) -> None:
        """Counts calls that a transport answers by itself like all others."""
        self._ready.add(replies)

    def meter(self, rpc: str) -> RpcMeter:
        """The metrics of that call."""
        return self._meters[rpc]
