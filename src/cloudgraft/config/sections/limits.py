"""Defines the `limits` sections: how much of the server its clients may use."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, StrictInt

from cloudgraft.config.fields import PositiveDuration
from cloudgraft.config.section import Section

_CONNECTIONS = (
    "Concurrent connections, at most a sixth of the process's open files. Above the limit, the oldest connections that "
    "have not authenticated are closed."
)


class ServerLimits(Section):
    """Limits on connections to the server. The defaults fit an autoscaler with several replicas."""

    connections: StrictInt = Field(512, ge=8, le=100_000, description=_CONNECTIONS)
    streams: StrictInt = Field(
        50, ge=1, le=10_000, description="Concurrent calls on one connection; a client with more waits."
    )
    handshake: PositiveDuration = Field(
        timedelta(seconds=10), description="The time limit of the TLS and HTTP/2 handshakes of a connection."
    )
    idle: PositiveDuration = Field(
        timedelta(minutes=10), description="A connection without a call for this long is closed gracefully."
    )


class DockLimits(Section):
    """Limits on connections to the dock."""

    connections: StrictInt = Field(2500, ge=8, le=100_000, description=_CONNECTIONS)


class WebLimits(Section):
    """Limits on connections to the server."""

    connections: StrictInt = Field(512, ge=8, le=100_000, description=_CONNECTIONS)
