"""Calls a driver that is connected to a remote dock: ``cloudgraft.driver.v1.Driver`` over gRPC.

The metadata of every call selects the driver: its kind, its API version and the machine class.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.client import Address, CloudConfig, error_from_rpc
from cloudgraft.client.connection import channel_credentials, credentials_stamp
from cloudgraft.client.errors import ERROR_KEY
from cloudgraft.dock.protocol.conversion_v1 import converted
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.slot import DriverSlot
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    CloudgraftError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

log = logging.getLogger("cloudgraft.dock")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The address of a dock, and the credentials for mutual authentication."""

    address: str  # host:port
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    server_name: str = ""
    token_file: Path | None = None


class RemoteSlot(DriverSlot):
    """Calls one driver through a remote dock. Dials at the first call.

    Uses certificates and tokens that are replaced on disk from the next call on.
    """

    def __init__(self, key: Key, machine_class: str, where: Destination) -> None:
        """Reads the certificates. Without TLS, only a dock on this machine is allowed."""
        self._config = CloudConfig(
            address=Address.parse(where.address),
            cert=str(where.cert_file or ""),
            key=str(where.key_file or ""),
            cacert=str(where.ca_file or ""),
            tls=where.ca_file is not None,
            server_name=where.server_name,
        )
        if not self._config.is_encrypted and not self._config.address.is_loopback:
            raise InvalidArgumentError(
                f"refusing to talk to the dock at {self._config.address} without TLS: settings and user data hold "
                "secrets. Set caFile, and certFile with keyFile or a tokenFile"
            )
        self.name = f"the dock at {self._config.address}"
        self._about = ((KIND_KEY, key.kind), (API_VERSION_KEY, key.api_version), (CLASS_KEY, machine_class))
        self._token_file = where.token_file
        self._token = ""
        self._stamp = credentials_stamp(self._config)
        self._credentials = channel_credentials(self._config)
        self._channel: grpc.aio.Channel | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Prepares the channel. Calling it again after a failed start changes nothing."""
        if self._channel is None:
            self._channel = self._dial()

    async def close(self) -> None:
        """Closes the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        for task in self._retired:
            task.cancel()
        await asyncio.gather(*self._retired, return_exceptions=True)
        self._show("")

    async def traits(self) -> DriverTraits | None:
        """Calls Describe. A response without ownership means that the driver declares nothing."""
        answer = await self._ask("Describe", pb.DescribeRequest(), pb.DescribeResponse, _DESCRIBE)
        return wire.traits_from_pb(answer) if answer.ownership else None

    async def create(self, spec: MachineSpec, within: timedelta) -> Machine:
        """Calls Create. A connection that breaks meanwhile is a DeadlineError: the machine may exist."""
        try:
            answer = await self._ask("Create", wire.spec_to_pb(spec), pb.CreateResponse, within)
        except UnavailableError as error:
            if _reported_by_dock(error.__cause__):
                raise
            raise DeadlineError(f"{error.message}; whether {spec.name} was created is not known") from error.__cause__
        machine = wire.machine_from_pb(answer.machine)
        if machine.name not in ("", spec.name):
            raise InternalError(f"{self.name} was asked for {spec.name!r} and answered with {machine.name!r}")
        return replace(machine, name=spec.name)

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
        data = await self._asked(rpc, request, within)
        try:
            return answer.FromString(data)
        except DecodeError as error:
            raise self._no_sense(rpc) from error

    async def _ask_for_many(
        self, rpc: str, request: Message, kind: type[Reply], convert: Callable[[Reply], T], within: timedelta
    ) -> Sequence[T]:
        """Decodes a response that may be long in steps, so that it does not block the event loop."""
        data = await self._asked(rpc, request, within)
        try:
            return await converted(convert, (), kind, memoryview(data))
        except DecodeError as error:
            raise self._no_sense(rpc) from error

    def _no_sense(self, rpc: str) -> InternalError:
        return InternalError(f"{self.name} answered {rpc} with undecodable bytes")

    async def _asked(self, rpc: str, request: Message, within: timedelta) -> bytes:
        metadata = self._metadata()
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._present().unary_unary(wire.RPCS[rpc].path)
        try:
            return await method(request.SerializeToString(), timeout=within.total_seconds(), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _with_name(self.name, error_from_rpc(error)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # gRPC raises this when the channel was closed meanwhile; this task was not cancelled.
            raise DeadlineError(f"{self.name}: the connection was closed during {rpc}") from error

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._token_file is None:
            return self._about
        try:
            token = self._token_file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise PreconditionError(f"the token for {self.name} cannot be read from {self._token_file}") from error
        if not token or not token.isascii() or not token.isprintable() or len(token) > _LONGEST_TOKEN:
            raise PreconditionError(f"{self._token_file} does not hold a token: one line of plain characters")
        self._show(token)
        return (*self._about, ("authorization", f"Bearer {token}"))

    def _show(self, token: str) -> None:
        """Redacts the token in use instead of the previous one."""
        if token != self._token:
            hide(token)
            unhide(self._token)
            self._token = token

    def _present(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise UnavailableError(f"the connection to {self.name} is closed")
        now = credentials_stamp(self._config)
        if now != self._stamp:
            self._stamp = now
            self._channel = self._renewed(self._channel)
        return self._channel

    def _renewed(self, old: grpc.aio.Channel) -> grpc.aio.Channel:
        try:
            self._credentials = channel_credentials(self._config)
        except CloudgraftError as error:  # half of a rotation: the other half changes the stamp again
            log.warning("new certificates cannot be used, the old ones stay: %s", error.message)
            return old
        task = asyncio.create_task(old.close(_RETIRE))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
        return self._dial()

    def _dial(self) -> grpc.aio.Channel:
        address = self._config.address
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", _LONGEST_ANSWER),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 250),
            ("grpc.max_reconnect_backoff_ms", 10_000),
            ("grpc.enable_http_proxy", int(not address.is_loopback)),
            ("grpc.keepalive_time_ms", int(_PING_EVERY * 1000)),
            ("grpc.keepalive_timeout_ms", int(_PING_ANSWER * 1000)),
            ("grpc.http2.ping_timeout_ms", int(_PING_ANSWER * 1000)),  # else it is a minute, whatever keepalive says
            ("grpc.keepalive_permit_without_calls", 1),  # so that the next call finds a connection that works
        ]
        if self._credentials is None:
            return grpc.aio.insecure_channel(address.target, options=options)
        options.append(("grpc.ssl_target_name_override", self._config.server_name or address.host))
        return grpc.aio.secure_channel(address.target, self._credentials, options=options)


def _with_name(name: str, error: CloudgraftError) -> CloudgraftError:
    return type(error)(f"{name}: {error.message}", retry_after=error.retry_after)


def _reported_by_dock(error: BaseException | None) -> bool:
    """True when the dock itself reported that the driver is away; it is certain then that nothing was done."""
    if error is None:
        return True  # nothing was sent
    trailing = error.trailing_metadata() if isinstance(error, grpc.aio.AioRpcError) else None
    return any(name == ERROR_KEY for name, _ in trailing or ())
