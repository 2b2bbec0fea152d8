"""Calls providers and drivers that run in a child process, and drivers that run in a server over TLS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol, TypeVar

import grpc.aio
from google.protobuf.message import Message

from cloudgraft.client import Address, CloudConfig, Connection, RemoteProvider
from cloudgraft.client.channel import ReloadingChannel, cut_calls_are_errors
from cloudgraft.client.driver_calls import call_driver, created, decoding, unknown_if_cut
from cloudgraft.plugins.host.connection import LARGEST_MESSAGE
from cloudgraft.plugins.host.process import PluginSpec, Timing
from cloudgraft.plugins.host.supervisor import PluginStatus, Supervisor
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import DeadlineError, InternalError, InvalidArgumentError, UnavailableError
from cloudgraft.sdk.list_budget import current_budget
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb
from cloudgraft.wire.rpc import Rpc

log = logging.getLogger("cloudgraft.plugins")

# -- Links to a driver -------------------------------------------------------------------------------------------------


class DriverLink(Protocol):
    """A connection to a driver: started once, then asked for a channel for each call.

    A driver that cloudgraft starts as a child process has its :class:`Supervisor`.
    """

    @property
    def name(self) -> str:
        """The driver's name in messages."""

    async def start(self) -> None:
        """Starts the process or prepares the connection."""

    def channel(self) -> grpc.aio.Channel:
        """Returns the channel to use now; raises UnavailableError at once when there is none."""

    async def stop(self) -> None:
        """Closes the link."""


class ServerLink:
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
        options = (("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.max_reconnect_backoff_ms", 10_000))
        self._channel = ReloadingChannel(config, options, retire=config.grpc_timeout.total_seconds())

    async def start(self) -> None:
        """Allows calls, also after a stop; the first one connects."""
        self._channel.open()

    def channel(self) -> grpc.aio.Channel:
        """Returns the channel with the current certificates; gRPC reconnects by itself."""
        self._channel.reload()
        return self._channel.get()

    async def stop(self) -> None:
        """Closes the channel."""
        await self._channel.close()


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
        return cls(Supervisor(spec, timing=timing))

    @classmethod
    def connect(cls, config: CloudConfig) -> RemoteDriver:
        """Creates a driver that runs as a server; the configured timeout limits each call."""
        return cls(ServerLink(config), timeout=config.grpc_timeout)

    async def start(self) -> None:
        """Opens the link and asks for the traits. A driver that is unavailable now is asked before the first call."""
        await self.link.start()
        try:
            await self._describe()
        except (UnavailableError, DeadlineError) as error:
            log.warning("a driver is not available yet: %s", error.message, extra={"driver": self.link.name})
        except BaseException:
            await self.link.stop()
            raise

    async def close(self) -> None:
        """Stops the plugin, or closes the connection."""
        await self.link.stop()

    async def create(self, spec: MachineSpec) -> Machine:
        """Create. A connection that breaks is a DeadlineError: the machine may have been created."""
        request = wire.spec_to_pb(spec)
        await self._describe()
        with unknown_if_cut(spec):
            answer = await self._call(self.link.channel(), "Create", request, pb.CreateResponse)
        return created(self.link.name, spec, wire.machine_from_pb(answer.machine))

    async def delete(self, machine: Machine) -> None:
        """Delete. A connection that breaks is a DeadlineError: the machine may be gone, and its id reused."""
        request = pb.DeleteRequest(machine=wire.machine_to_pb(machine))
        await self._describe()
        with unknown_if_cut(machine):
            await self._call(self.link.channel(), "Delete", request, pb.DeleteResponse)

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

    async def _ask(self, rpc: str, request: Message, answer: type[Answer]) -> Answer:
        await self._describe()
        return await self._call(self.link.channel(), rpc, request, answer)

    async def _call(self, channel: grpc.aio.Channel, rpc: str, request: Message, answer: type[Answer]) -> Answer:
        log.debug("driver call", extra={"driver": self.link.name, "rpc": rpc})
        data = await call_driver(self.link.name, channel, rpc, request, seconds=self._seconds(rpc))
        with decoding(self.link.name, rpc):
            return answer.FromString(data)

    def _seconds(self, rpc: str) -> float:
        """Returns the timeout of a call. For a create the driver declares its own."""
        own = self.traits.create_timeout if rpc == "Create" else None
        return self._timeout if own is None else max(self._timeout, own.total_seconds())


# -- The provider ------------------------------------------------------------------------------------------------------


class PluginProvider(RemoteProvider):
    """A provider in a plugin process that cloudgraft starts and restarts.

    While it is not running, every call fails at once with UnavailableError; put a SnapshotProvider in front to keep its
    groups. A call in flight when it ends fails too, and may have been carried out.
    """

    def __init__(
        self, spec: PluginSpec, *, timing: Timing | None = None, call_timeout: timedelta = timedelta(seconds=5)
    ) -> None:
        self.supervisor = Supervisor(spec, timing=timing)
        address = Address(text=self.supervisor.name, host="localhost", port="0")
        super().__init__(_PluginConnection(self.supervisor, CloudConfig(address=address, grpc_timeout=call_timeout)))

    @property
    def status(self) -> PluginStatus:
        """The plugin's current status."""
        return self.supervisor.status

    async def start(self) -> None:
        """Starts the plugin. Only a command that cannot be executed is an error; other failures are retried."""
        await self.supervisor.start()

    async def close(self) -> None:
        """Stops the plugin and all its descendants."""
        await self.supervisor.stop()


class _PluginConnection(Connection):
    """Makes each call over the connection to the plugin's current run."""

    def __init__(self, supervisor: Supervisor, config: CloudConfig) -> None:
        super().__init__(config)
        self._supervisor = supervisor

    def channel(self) -> grpc.aio.Channel:
        return self._supervisor.channel()

    async def call(self, rpc: Rpc, request: Message) -> Message:
        self._supervisor.connection()  # raises here while there is none: the supervisor has logged why
        with cut_calls_are_errors():
            return await super().call(rpc, request)
