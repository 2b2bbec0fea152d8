"""Counts the connections and rejections of each listener."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

NOT_ALLOWED = "not_allowed"  # a call of a client whose certificate is not an allowed one
UNKNOWN = "unknown"  # a call without a certificate or token that the listener knows
TOO_MANY = "too_many"  # a connection that was closed because the listener had too many
TOO_SLOW = "too_slow"  # a connection that was closed because its handshake took too long
FLOOD = "flood"  # a connection that was closed because many of its calls were refused

Refuse = Callable[[str], None]  # counts a refusal by its reason


class ListenerMetrics:
    """The metrics of all listeners of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "cloudgraft_refused_clients",
            "Calls and connections refused, by listener and reason: not_allowed, unknown, too_many, too_slow, flood",
            ["listener", "reason"],
            registry=registry,
        )
        self._connections = Gauge(
            "cloudgraft_connections", "Open connections of a listener", ["listener"], registry=registry
        )
        self._limit = Gauge(
            "cloudgraft_connections_limit",
            "Connections that a listener may hold",
            ["listener"],
            registry=registry,
        )

    def refusals(self, listener: str) -> Refuse:
        """Counts refusals of that listener."""
        for reason in (NOT_ALLOWED, UNKNOWN, TOO_MANY, TOO_SLOW, FLOOD):
            self._refused.labels(listener, reason)

        def refuse(reason: str) -> None:
            self._refused.labels(listener, reason).inc()

        return refuse

    def watch(self, listener: str, count: Callable[[], int], limit: int) -> None:
        """Exports the number of connections of that listener."""
        self._connections.labels(listener).set_function(count)
        self._limit.labels(listener).set(limit)
