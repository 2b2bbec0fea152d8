"""Calls a driver that is connected to a remote dock: ``cloudgraft.driver.v1.Driver`` over gRPC.

The metadata of every call selects the driver: its kind, its API version and the machine class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message

from cloudgraft.client import CloudConfig
from cloudgraft.client.channel import ChannelOptions, ReloadingChannel
from cloudgraft.client.driver_calls import call_driver, created, decoding, unknown_if_cut
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.protocol.v1 import converted
from cloudgraft.dock.slot import DriverSlot
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

Reply = TypeVar("Reply", bound=Message)
T = TypeVar("T")

KIND_KEY: Final = "cloudgraft-kind"
API_VERSION_KEY: Final = "cloudgraft-api-version"
CLASS_KEY: Final = "cloudgraft-machine-class"
_DESCRIBE: Final = timedelta(seconds=10)
_RETIRE: Final = 120.0  # seconds for calls under way when certificates have changed
_LONGEST_ANSWER: Final = 64 * 1024 * 1024
_LONGEST_TOKEN: Final = 8192
# Seconds. A dock whose network fails silently is noticed after their sum. A dock rejects pings closer than 5 s.
_PING_EVERY: Final = 20.0
_PING_ANSWER: Final = 10.0


class RemoteSlot(DriverSlot):
    """Calls one driver through a remote dock. Dials at the first call.

    Uses certificates and tokens that are replaced on disk from the next call on.
    """

    def __init__(self, key: Key, machine_class: str, config: CloudConfig, token_file: Path | None) -> None:
        """Reads the certificates. Without TLS, only a dock on this machine is allowed."""
        if not config.is_encrypted and not config.address.is_loopback:
            raise InvalidArgumentError(
                f"refusing to talk to the dock at {config.address} without TLS: settings and user data hold "
                "secrets. Set caFile, and certFile with keyFile or a tokenFile"
            )
        self.name = f"the dock at {config.address}"
        self._selection = ((KIND_KEY, key.kind), (API_VERSION_KEY, key.api_version), (CLASS_KEY, machine_class))
        self._token_file = token_file
        self._token = ""
        self._channel = ReloadingChannel(config, _channel_options(), retire=_RETIRE)

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()
        self._redact("")

    async def traits(self) -> DriverTraits | None:
        """Calls Describe. A response without ownership means that the driver declares nothing."""
        answer = await self._ask("Describe", pb.DescribeRequest(), pb.DescribeResponse, _DESCRIBE)
        return wire.traits_from_pb(answer) if answer.ownership else None

    async def create(self, spec: MachineSpec, within: timedelta) -> Machine:
        """Calls Create. A connection that breaks meanwhile is a DeadlineError: the machine may exist."""
        with unknown_if_cut(spec):
            answer = await self._ask("Create", wire.spec_to_pb(spec), pb.CreateResponse, within)
        return created(self.name, spec, wire.machine_from_pb(answer.machine))

    async def delete(self, machine: Machine, within: timedelta) -> None:
        """Calls Delete."""
        await self._ask("Delete", pb.DeleteRequest(machine=wire.machine_to_pb(machine)), pb.DeleteResponse, within)

    async def list(self, within: timedelta) -> Sequence[Machine]:
        """Calls List; the whole list is one response."""
        return await self._ask_for_many("List", pb.ListRequest(), pb.Machine, wire.machine_from_pb, within)

    async def shapes(self, within: timedelta) -> Sequence[Shape]:
        """Calls Shapes."""
        return await self._ask_for_many("Shapes", pb.ShapesRequest(), pb.Shape, wire.shape_from_pb, within)

    async def prices(self, within: timedelta) -> Sequence[Price]:
        """Calls Prices."""
        return await self._ask_for_many("Prices", pb.PricesRequest(), pb.Price, wire.price_from_pb, within)

    async def _ask(self, rpc: str, request: Message, answer: type[Reply], within: timedelta) -> Reply:
        data = await self._call(rpc, request, within)
        with decoding(self.name, rpc):
            return answer.FromString(data)

    async def _ask_for_many(
        self, rpc: str, request: Message, kind: type[Reply], convert: Callable[[Reply], T], within: timedelta
    ) -> Sequence[T]:
        """Decodes a response that may be long in steps, so that it does not block the event loop."""
        data = await self._call(rpc, request, within)
        with decoding(self.name, rpc):
            return await converted(convert, (), kind, memoryview(data))

    async def _call(self, rpc: str, request: Message, within: timedelta) -> bytes:
        metadata = self._metadata()
        self._channel.reload()
        seconds = within.total_seconds()
        return await call_driver(self.name, self._channel.get(), rpc, request, seconds=seconds, metadata=metadata)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._token_file is None:
            return self._selection
        try:
            token = self._token_file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise PreconditionError(f"the token for {self.name} cannot be read from {self._token_file}") from error
        if not token or not token.isascii() or not token.isprintable() or len(token) > _LONGEST_TOKEN:
            raise PreconditionError(f"{self._token_file} does not hold a token: one line of plain characters")
        self._redact(token)
        return (*self._selection, ("authorization", f"Bearer {token}"))

    def _redact(self, token: str) -> None:
        """Redacts the token in use instead of the previous one."""
        if token != self._token:
            hide(token)
            unhide(self._token)
            self._token = token


def _channel_options() -> ChannelOptions:
    return (
        ("grpc.max_receive_message_length", _LONGEST_ANSWER),
        ("grpc.initial_reconnect_backoff_ms", 250),
        ("grpc.max_reconnect_backoff_ms", 10_000),
        ("grpc.keepalive_time_ms", int(_PING_EVERY * 1000)),
        ("grpc.keepalive_timeout_ms", int(_PING_ANSWER * 1000)),
        ("grpc.http2.ping_timeout_ms", int(_PING_ANSWER * 1000)),  # else it is a minute, whatever keepalive says
        ("grpc.keepalive_permit_without_calls", 1),  # so that the next call finds a connection that works
    )
