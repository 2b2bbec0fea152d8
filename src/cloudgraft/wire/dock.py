"""Names the calls of a hub, and converts the times in its messages.

The types that the messages become explain them: ``cloudgraft.dock.protocol.v0`` and ``conversion_v1``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration

from cloudgraft.wire.pb import dock_pb2 as v1
from cloudgraft.wire.pb import dock_v0_pb2 as v0
from cloudgraft.wire.rpc import Rpc, rpc_table

V1_SERVICE: Final = "cloudgraft.dock.v1.Dock"
V0_SERVICES: Final = ("service.Servicegrpc", "infra.Infragrpc")  # the second one is the older
CONNECT: Final = "Connect"  # v1's stream
REGISTER: Final = "Register"  # v0's stream

_NO_TIME: Final = timedelta(0)
_LONGEST: Final = timedelta(days=36500)  # no caller waits longer


def v1_rpcs() -> dict[str, Rpc]:
    """The calls of v1; Connect is a stream in both directions."""
    return rpc_table(
        V1_SERVICE,
        (
            (CONNECT, v1.DriverMessage, v1.HubMessage),
            ("GetMachineClass", v1.GetMachineClassRequest, v1.MachineClass),
            ("GetSecret", v1.GetSecretRequest, v1.Secret),
        ),
    )


def v0_rpcs(service: str = V0_SERVICES[0]) -> dict[str, Rpc]:
    """The calls of v0 under one of its names; Register is a stream in both directions."""
    return rpc_table(
        service,
        (
            (REGISTER, v0.DriverSide, v0.MCMside),
            ("GetMachineClass", v0.MachineClassMeta, v0.MachineClass),
            ("GetSecret", v0.SecretMeta, v0.Secret),
        ),
    )


def duration_to_pb(time: timedelta) -> Duration:
    message = Duration()
    put_duration(message, time)
    return message


def put_duration(message: Duration, time: timedelta) -> None:
    """The same, written into an existing message."""
    if not _NO_TIME <= time <= _LONGEST:
        time = max(_NO_TIME, min(time, _LONGEST))
    message.seconds = time.days * 86400 + time.seconds
    message.nanos = time.microseconds * 1000


def duration_from_pb(message: Duration) -> timedelta:
    """A duration from the other side: never negative, and never longer than a limit."""
    seconds = max(0.0, min(message.seconds + message.nanos / 1e9, _LONGEST.total_seconds()))
    return timedelta(seconds=seconds)
