"""The `limits` sections: how much of the server those who connect may take."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, StrictInt

from cloudgraft.config.fields import PositiveDuration
from cloudgraft.config.section import Section

__all__ = ["DockLimits", "ServerLimits", "WebLimits"]

_CONNECTIONS = (
    "Connections at a time, at most a sixth of the process's open files. When there are more, the oldest of those that "
    "have proved nothing go."
)


class ServerLimits(Section):
    """How much of the server those who connect may take. The defaults fit an autoscaler with several replicas."""

    connections: StrictInt = Field(512, ge=8, le=100_000, description=_CONNECTIONS)
    streams: StrictInt = Field(
        50, ge=1, le=10_000, description="Calls at a time on one connection; a client with more waits."
    )
    handshake: PositiveDuration = Field(
        timedelta(seconds=10), description="How long a connection may take until it is encrypted and speaks HTTP/2."
    )
    idle: PositiveDuration = Field(
        timedelta(minutes=10), description="A connection without a call for this long is closed, in an orderly way."
    )


class DockLimits(Section):
    """How much of the dock those who connect may take."""

    connections: StrictInt = Field(2500, ge=8, le=100_000, description=_CONNECTIONS)


class WebLimits(Section):
    """How much of the server those who connect may take."""

    connections: StrictInt = Field(512, ge=8, le=100_000, description=_CONNECTIONS)
