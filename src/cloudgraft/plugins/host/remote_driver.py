"""Calls a driver that runs in a child process, or in a server over TLS."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cloudgraft.client import CloudConfig, error_from_rpc
from cloudgraft.client.connection import channel_credentials, credentials_stamp
from cloudgraft.client.errors import ERROR_KEY
from cloudgraft.plugins.host.connection import LARGEST_MESSAGE, cut_calls_are_errors
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.supervisor import Supervisor
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError, DeadlineError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.event_loop import in_slices
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

# -- Links to a driver -------------------------------------------------------------------------------------------------


log = logging.getLogger("cloudgraft.plugins")


class DriverLink(ABC):
    """A connection to a driver: opened once, then asked for a channel for each call."""

    name: str

    @abstractmethod
    async def open(self) -> None:
        """Starts the process or prepares the connection."""

    @abstractmethod
    def channel(self) -> grpc.aio.Channel:
        """Returns the channel to use now; raises UnavailableError at once when there is none."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the link."""


class PluginLink(DriverLink):
    """A link to a driver that cloudgraft starts as a child process and restarts."""

    def __init__(self, spec: PluginSpec, *, timing: Timing | None = None) -> None:
        self.name = f"the plugin {spec.name!r}"
        self.supervisor = Supervisor(spec, timing=timing)

    async def open(self) -> None:
        """Starts the plugin. Only a command that cannot be executed is an error; other failures are retried."""
        await self.supervisor.start()

    def channel(self) -> grpc.aio.Channel:
        """Returns the channel to the plugin's current run."""
        return self.supervisor.connection().channel

    async def close(self) -> None:
        """Stops the plugin and all its descendants."""
        await self.supervisor.stop()


class ServerLink(DriverLink):
    """A link to a driver that runs as a separate server. The first call connects.

    Certificates that are replaced on disk are used from the next call on; calls in flight end on the old connection.
    """

    def __init__(self, config: CloudConfig) -> None:
        """Reads the certificates. Without TLS only a server on this machine is allowed."""
        if not config.is_encrypted and not config.address.is_loopback:
            raise InvalidArgumentError(
                f"refusing to talk to the driver at {config.address} without TLS: settings and user data hold "
                "secrets. Set cert, key and cacert"
            )
        self.name = f"the driver at {config.address}"
        self._config = config
        self._stamp = credentials_stamp(config)
        self._credentials = channel_credentials(config)
        self._channel: grpc.aio.Channel | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Prepares the channel."""
        self._channel = self._dial()

    def channel(self) -> grpc.aio.Channel:
        """Returns the channel with the current certificates; gRPC reconnects by itself."""
        if self._channel is None:
            raise UnavailableError(f"{self.name} is closed")
        now = credentials_stamp(self._config)
        if now != self._stamp:
            self._stamp = now
            self._renew(self._channel)
        return self._channel

    async def close(self) -> None:
        """Closes the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        await asyncio.gather(*self._retired)

    def _renew(self, old: grpc.aio.Channel) -> None:
        try:
            self._credentials = channel_credentials(self._config)
        except CloudgraftError as error:  # half a rotation: the other half changes the stamp again
            log.warning("new certificates cannot be used, the old ones stay: %s", error.message)
            return
        self._channel = self._dial()
        task = asyncio.create_task(old.close(self._config.grpc_timeout.total_seconds()))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    def _dial(self) -> grpc.aio.Channel:
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", LARGEST_MESSAGE),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 10_000),
            ("grpc.enable_http_proxy", int(not self._config.address.is_loopback)),
        ]
        target = self._config.address.target
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        options.append(("grpc.ssl_target_name_override", self._config.server_name or self._config.address.host))
        return grpc.aio.secure_channel(target, self._credentials, options=options)


# -- The driver --------------------------------------------------------------------------------------------------------


Answer = TypeVar("Answer", bound=Message)

_MOST_PAGES: Final = 10_000
_SLICE: Final = 100  # machines that are decoded before other tasks run
# The traits of a driver that has not answered yet: with these the engine creates and deletes the least.
_UNTIL_DESCRIBED: Final = DriverTraits(complete_list=False, list_delay=timedelta(days=1))


class RemoteDriver(Driver):
    """A driver behind ``cloudgraft.driver.v1.Driver``, in any language.

    It asks for the traits in each new connection, before the first call. Until then :attr:`traits` are such that no
    machine counts as gone.
    """

    def __init__(self, link: DriverLink, *, timeout: timedelta = timedelta(seconds=60)) -> None:
        """``timeout`` limits each call: a driver may wait for its cloud, but not for ever."""
        self.link = link
        self.traits = _UNTIL_DESCRIBED
        self._timeout = timeout.total_seconds()
        self._described: grpc.aio.Channel | None = None

    @classmethod
    def plugin(cls, spec: PluginSpec, *, timing: Timing | None = None) -> RemoteDriver:
        """Creates a driver that runs as our child process."""
        return cls(PluginLink(spec, timing=timing))

    @classmethod
    def connect(cls, config: CloudConfig) -> RemoteDriver:
        """Creates a driver that runs as a server; the configured timeout limits each call."""
        return cls(ServerLink(config), timeout=config.grpc_timeout)

    async def start(self) -> None:
        """Opens the link and asks for the traits. A driver that is unavailable now is asked before the first call."""
        await self.link.open()
        try:
            await self._describe()
        except (UnavailableError, DeadlineError) as error:
            log.warning("a driver is not available yet: %s", error.message, extra={"driver": self.link.name})
        except BaseException:
            await self.link.close()
            raise

    async def close(self) -> None:
        """Stops the plugin, or closes the connection."""
        await self.link.close()

    async def create(self, spec: MachineSpec) -> Machine:
        """Create. A connection that breaks is a DeadlineError: the machine may have been created."""
        answer = await self._ask("Create", wire.spec_to_pb(spec), pb.CreateResponse, makes=True)
        machine = wire.machine_from_pb(answer.machine)
        # An empty name was merely not repeated by the author; a different name means a different machine.
        if machine.name not in ("", spec.name):
            raise InternalError(f"{self.link.name} was asked for {spec.name!r} and answered with {machine.name!r}")
        return replace(machine, name=spec.name)

    async def delete(self, machine: Machine) -> None:
        """Delete."""
        await self._ask("Delete", pb.DeleteRequest(machine=wire.machine_to_pb(machine)), pb.DeleteResponse)

    async def list(self) -> Sequence[Machine]:
        """List, page by page; all of it or an error."""
        machines: list[Machine] = []
        budget = current_budget()
        token, seen = "", set[str]()
        for _ in range(_MOST_PAGES):
            page = await self._ask("List", pb.ListRequest(page_token=token), pb.ListResponse)
            budget.check_count(len(machines) + len(page.machines))
            budget.spend(page.ByteSize())
            async for some in in_slices(page.machines, _SLICE):
                machines += [wire.machine_from_pb(machine) for machine in some]
            await asyncio.sleep(0)  # a server that answers at once must not hold up others with page after page
            token = page.next_page_token
            if not token:
                return machines
            if token in seen:
                raise InternalError(f"{self.link.name} gives the same page token twice: its list has no end")
            seen.add(token)
        raise InternalError(f"{self.link.name} has more than {_MOST_PAGES} pages of machines")

    async def shapes(self) -> Sequence[Shape]:
        """Shapes; UnsupportedError when the driver has none."""
        answer = await self._ask("Shapes", pb.ShapesRequest(), pb.ShapesResponse)
        return [wire.shape_from_pb(shape) for shape in answer.shapes]

    async def prices(self) -> Sequence[Price]:
        """Prices; UnsupportedError when the driver has none."""
        answer = await self._ask("Prices", pb.PricesRequest(), pb.PricesResponse)
        return [wire.price_from_pb(price) for price in answer.prices]

    async def _describe(self) -> None:
        channel = self.link.channel()
        if channel is self._described:
            return
        traits = wire.traits_from_pb(await self._call(channel, "Describe", pb.DescribeRequest(), pb.DescribeResponse))
        if self._described is not None and traits != self.traits:
            log.warning("the traits of a driver have changed: %s", traits, extra={"driver": self.link.name})
        self.traits = traits
        self._described = channel

    async def _ask(self, rpc: str, request: Message, answer: type[Answer], *, makes: bool = False) -> Answer:
        await self._describe()
        try:
            return await self._call(self.link.channel(), rpc, request, answer)
        except UnavailableError as error:
            cause = error.__cause__
            if makes and isinstance(cause, grpc.aio.AioRpcError) and not _says_by_itself(cause):
                # gRPC uses this code for a connection that broke before the request was sent, and after.
                message = f"{error.message}; whether {rpc} was carried out is not known"
                raise DeadlineError(message) from cause
            raise

    def _seconds(self, rpc: str) -> float:
        """Returns the timeout of a call. For a create the driver declares its own."""
        own = self.traits.create_timeout if rpc == "Create" else None
        return self._timeout if own is None else max(self._timeout, own.total_seconds())

    async def _call(self, channel: grpc.aio.Channel, rpc: str, request: Message, answer: type[Answer]) -> Answer:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(wire.RPCS[rpc].path)
        log.debug("driver call", extra={"driver": self.link.name, "rpc": rpc})
        try:
            with cut_calls_are_errors():
                data = await method(request.SerializeToString(), timeout=self._seconds(rpc))
        except grpc.aio.AioRpcError as error:
            raise _with_name(self.link.name, error_from_rpc(error)) from error
        try:
            return answer.FromString(data)
        except DecodeError as error:
            raise InternalError(f"{self.link.name} answered {rpc} with bytes that make no sense") from error


def _with_name(name: str, error: CloudgraftError) -> CloudgraftError:
    return type(error)(f"{name}: {error.message}", retry_after=error.retry_after)


def _says_by_itself(error: grpc.aio.AioRpcError) -> bool:
    """Returns True when the driver itself reports that it or its cloud is unavailable. Then nothing was done."""
    return any(key == ERROR_KEY for key, _ in error.trailing_metadata() or ())
