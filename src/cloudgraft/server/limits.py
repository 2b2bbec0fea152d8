"""How much of the server one gRPC listener, and one connection to it, may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cloudgraft.net.descriptors import connection_limit

__all__ = ["ListenerLimits"]

_MOST_PENDING: Final = 100_000  # calls that wait to be handled; each takes some kilobytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """The defaults fit an autoscaler with several replicas: one connection each, tens of calls at once."""

    connections: int = 512  # at most the listener's share of the descriptors
    streams: int = 50  # calls under way on one connection
    calls: int = 1000  # calls under way on all of them
    handshake: float = 10.0  # seconds from the connection to its first HTTP/2 frame
    idle: float = 600.0  # seconds without a call after which a connection is closed, in an orderly way
    ping_interval: float = 10.0  # seconds between two pings that a client without calls may send
    header_bytes: int = 16 * 1024
    message_bytes: int = 4 * 1024 * 1024

    @property
    def allowed_connections(self) -> int:
        """How many connections are accepted."""
        return connection_limit(self.connections)

    def grpc_options(self) -> tuple[tuple[str, int], ...]:
        """The same for gRPC. Whatever is not here it does not limit: see docs/explanation/security.md."""
        pending = min(self.allowed_connections * self.streams, _MOST_PENDING)
        handshake = max(1, round(self.handshake * 1000))
        return (
            # Without this a second server on the same port would start, and each would get a part of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", self.allowed_connections),
            # Streams that were reset count until gRPC has freed them: that bounds rapid resets too.
            ("grpc.max_concurrent_streams", self.streams),
            # gRPC drops calls of all connections at random when too many wait: there is room for all that can be.
            ("grpc.server.max_pending_requests", pending),
            ("grpc.server.max_pending_requests_hard_limit", pending + 1),
            ("grpc.server_handshake_timeout_ms", handshake),
            ("grpc.http2.settings_timeout", handshake),
            ("grpc.max_connection_idle_ms", max(1, round(self.idle * 1000))),
            ("grpc.max_metadata_size", self.header_bytes),
            ("grpc.absolute_max_metadata_size", self.header_bytes),
            ("grpc.max_receive_message_length", self.message_bytes),
            # Clients may ping this often while they have no calls; more is taken for an attack.
            ("grpc.http2.min_ping_interval_without_data_ms", round(self.ping_interval * 1000)),
        )
