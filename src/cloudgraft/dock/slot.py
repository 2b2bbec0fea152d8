"""Connects a cloud of the engine to one key and one machine class of a dock, in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message

from cloudgraft.client import CloudConfig
from cloudgraft.client.channel import ChannelOptions, ReloadingChannel, read_token
from cloudgraft.client.driver_calls import call_driver, created, decoding, unknown_if_cut
from cloudgraft.dock.classes.declared import mapping_at, text_at
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import Answer, ClassRef, Key, MachineClass, Operation
from cloudgraft.dock.protocol.v1 import converted
from cloudgraft.engine.groups.templates import ARCH, REGION, ZONE
from cloudgraft.sdk.common.event_loop import call_timer, in_slices
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity
from cloudgraft.sdk.secrecy import hide, unhide
from cloudgraft.wire import driver as wire
from cloudgraft.wire.pb import driver_pb2 as pb

# -- Machine types of classes, for the engine's node templates ---------------------------------------------------------


_PODS: Final = Quantity(110)  # the kubelet's default
_GPU: Final = "nvidia.com/gpu"
_LABELS: Final = {"architecture": ARCH, "region": REGION, "zone": ZONE}


def shape_of(machine_class: MachineClass) -> Shape:
    """The machine type of a class, named after its ``instanceType``, else after the class.

    Raises UnsupportedError when the class has no node template, InvalidArgumentError when it has a wrong one.
    """
    template, name = machine_class.node_template, machine_class.name
    if not template:
        raise UnsupportedError(f"machine class {name} has no nodeTemplate: its resources are unknown")
    try:
        capacity, labels = _capacity(template), _labels(template)
        return Shape(name=text_at(template, "instanceType") or name, capacity=capacity, labels=labels)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"nodeTemplate of machine class {name}: {error.message}") from None


def _capacity(template: Mapping[str, object]) -> dict[str, Quantity]:
    given = {**mapping_at(template, "capacity"), **mapping_at(template, "virtualCapacity")}
    amounts = {name: _amount(name, value) for name, value in given.items()}
    gpu = amounts.pop("gpu", Quantity(0))
    return {"pods": _PODS, **amounts, **({_GPU: gpu} if gpu > Quantity(0) else {})}


def _amount(name: str, value: object) -> Quantity:
    """Reads a quantity as Kubernetes writes it: text, or a plain number."""
    try:
        amount = Quantity(str(value) if isinstance(value, float) else value)  # type: ignore[arg-type]  # refused there
    except InvalidQuantityError as error:
        raise InvalidArgumentError(f"capacity.{name}: {error.message}") from None
    if amount < Quantity(0):
        raise InvalidArgumentError(f"capacity.{name} is negative")
    return amount


def _labels(template: Mapping[str, object]) -> dict[str, str]:
    given = mapping_at(template, "labels")
    labels = {str(key): text_at(given, key) for key in given}
    for field, label in _LABELS.items():
        value = text_at(template, field)
        if value:
            labels.setdefault(label, value)
    return labels


# -- Through the hub of this process -----------------------------------------------------------------------------------


T = TypeVar("T")
_WITHOUT_USER_DATA: Final = "v0"
_SLICE: Final = 5000  # entries of a long response that are converted before the event loop runs other tasks


class HubSlot:
    """Calls a driver through the hub of this process: as a driver of the sdk, with a time limit for each call.

    Where the driver has no shapes, the machine class says what a machine holds.
    """

    def __init__(
        self,
        hub: Hub,
        classes: MachineClasses | None,
        key: Key,
        machine_class: str,
        within: timedelta = timedelta(minutes=10),
        max_in_flight: int = 1,
    ) -> None:
        """``within`` is the time limit of a call that has none of its own; ``max_in_flight`` is for drivers of v0."""
        self.name = f"the driver of {key}"
        self._hub = hub
        self._classes = classes
        self._key = key
        self._class = machine_class
        self._within = within
        self._max_in_flight = max_in_flight
        self._is_open = False

    async def describe(self) -> DriverTraits | None:
        """The traits of the driver's hello; None: it declares none. Raises UnavailableError when it is away."""
        return self.traits

    async def open(self) -> None:
        """Tells the hub that this driver is needed."""
        if not self._is_open:
            self._hub.expect(self._key)
        self._is_open = True

    async def close(self) -> None:
        """Takes that back. The hub itself belongs to the process."""
        if self._is_open:
            self._hub.expect_no_more(self._key)
        self._is_open = False

    @property
    def traits(self) -> DriverTraits | None:
        """The same without waiting: they are in memory."""
        info = self._hub.info(self._key)
        if info is None:
            raise UnavailableError(f"{self.name} is not connected")
        return info.traits

    async def create(self, spec: MachineSpec, within: timedelta | None = None) -> Machine:
        """Rejects a machine of another name; a machine without a name is accepted."""
        info = self._hub.info(self._key)
        if spec.user_data and info is not None and info.protocol == _WITHOUT_USER_DATA:
            raise PreconditionError(
                f"{self.name} speaks the protocol of 2018, in which a machine cannot be given user data: put it into "
                "the secret of the machine class, and leave `join` out for this group"
            )
        answer = await self._call(Verb.CREATE, within, spec=spec)
        if not isinstance(answer, Machine) or not answer.machine_id:
            raise InternalError(f"{self.name} created {spec.name!r} and gave no machine_id; a list will show it")
        return created(self.name, spec, answer)

    async def delete(self, machine: Machine, within: timedelta | None = None) -> None:
        """Deletes the machine; the response carries nothing."""
        await self._call(Verb.DELETE, within, machine=machine)

    async def list(self, within: timedelta | None = None) -> Sequence[Machine]:
        """Lists all machines of the class."""
        return await self._checked(await self._call(Verb.LIST, within), Machine)

    async def shapes(self, within: timedelta | None = None) -> Sequence[Shape]:
        """The driver's shapes, else the one of the class."""
        try:
            return await self._checked(await self._call(Verb.SHAPES, within), Shape)
        except UnsupportedError:
            machine_class = self._known_class()
            if machine_class is None:
                raise
            return (shape_of(machine_class),)

    async def prices(self, within: timedelta | None = None) -> Sequence[Price]:
        """The driver's prices."""
        return await self._checked(await self._call(Verb.PRICES, within), Price)

    async def _call(self, verb: Verb, within: timedelta | None, **about: Any) -> Answer:
        operation = Operation(
            verb=verb,
            class_ref=self._class_ref(verb),
            timeout=self._within if within is None else within,
            max_in_flight=self._max_in_flight,
            **about,
        )
        return await self._hub.call(self._key, operation)

    def _class_ref(self, verb: Verb) -> ClassRef:
        if self._classes is None:
            return ClassRef(name=self._class)
        if verb is Verb.CREATE:
            self._classes.check_create(self._class, self._key)
        try:
            return self._classes.ref(self._class, self._key)
        except NotFoundError:
            if verb is Verb.CREATE:
                raise
            return ClassRef(name=self._class)  # machines of a removed class must still be listed and deleted

    def _known_class(self) -> MachineClass | None:
        if self._classes is None:
            return None
        try:
            return self._classes.get(self._class, self._key)
        except NotFoundError:
            return None

    async def _checked(self, answer: Answer, kind: type[T]) -> Sequence[T]:
        if not isinstance(answer, Sequence):
            raise InternalError(f"{self.name} answered with {type(answer).__name__} where a list was asked for")
        async for some in in_slices(answer, _SLICE):
            if not all(isinstance(item, kind) for item in some):
                raise InternalError(f"{self.name} answered with a list that is not one of {kind.__name__}")
        return cast("Sequence[T]", answer)


# -- Through a remote dock ---------------------------------------------------------------------------------------------
# It serves ``cloudgraft.driver.v1.Driver`` over gRPC. The metadata of every call selects the driver: its kind, its API
# version and the machine class.


Reply = TypeVar("Reply", bound=Message)

KIND_KEY: Final = "cloudgraft-kind"
API_VERSION_KEY: Final = "cloudgraft-api-version"
CLASS_KEY: Final = "cloudgraft-machine-class"
MAX_IN_FLIGHT_KEY: Final = "cloudgraft-max-in-flight"
SECONDS_KEY: Final = "cloudgraft-seconds"  # for the driver's answer; the call itself may also wait in the dock
_IN_QUEUE: Final = timedelta(seconds=HubSettings().queue)
_DESCRIBE: Final = timedelta(seconds=10)
_RETIRE: Final = 120.0  # seconds for calls under way when certificates have changed
_LONGEST_ANSWER: Final = 64 * 1024 * 1024
# Seconds. A dock whose network fails silently is noticed after their sum. A dock rejects pings closer than 5 s.
_PING_EVERY: Final = 20.0
_PING_ANSWER: Final = 10.0


class RemoteSlot:
    """Does the same through a remote dock. Dials at the first call.

    Uses certificates and tokens that are replaced on disk from the next call on.
    """

    def __init__(
        self, key: Key, machine_class: str, config: CloudConfig, token_file: Path | None, *, max_in_flight: int = 1
    ) -> None:
        """Reads the certificates. Without TLS, only a dock on this machine is allowed."""
        if not config.is_encrypted and not config.address.is_loopback:
            raise InvalidArgumentError(
                f"refusing to talk to the dock at {config.address} without TLS: settings and user data hold "
                "secrets. Set caFile, and certFile with keyFile or a tokenFile"
            )
        self.name = f"the dock at {config.address}"
        self._selection = (
            (KIND_KEY, key.kind),
            (API_VERSION_KEY, key.api_version),
            (CLASS_KEY, machine_class),
            (MAX_IN_FLIGHT_KEY, str(max_in_flight)),
        )
        self._token_file = token_file
        self._token = ""
        self._channel = ReloadingChannel(config, _channel_options(), retire=_RETIRE)

    async def open(self) -> None:
        """Allows calls, also after :meth:`close`."""
        self._channel.open()

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()
        self._redact("")

    async def describe(self) -> DriverTraits | None:
        """Calls Describe. A response without ownership means that the driver declares nothing."""
        answer = await self._ask("Describe", pb.DescribeRequest(), pb.DescribeResponse, _DESCRIBE)
        return wire.traits_from_pb(answer) if answer.ownership else None

    async def create(self, spec: MachineSpec, within: timedelta) -> Machine:
        """Calls Create. A connection that breaks meanwhile is a DeadlineError: the machine may exist."""
        with unknown_if_cut(spec):
            answer = await self._ask("Create", wire.spec_to_pb(spec), pb.CreateResponse, within)
        return created(self.name, spec, wire.machine_from_pb(answer.machine))

    async def delete(self, machine: Machine, within: timedelta) -> None:
        """Calls Delete. A connection that breaks meanwhile is a DeadlineError: the machine may be gone."""
        request = pb.DeleteRequest(machine=wire.machine_to_pb(machine))
        with unknown_if_cut(machine):
            await self._ask("Delete", request, pb.DeleteResponse, within)

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
        """Makes a call. The dock limits the driver's time, from when it sends the call; here the queue counts too."""
        metadata = (*self._metadata(), (SECONDS_KEY, f"{within.total_seconds():g}"))
        self._channel.reload()
        seconds = within.total_seconds()
        if rpc != "Describe":  # the dock answers that itself
            call_timer().hold(_IN_QUEUE.total_seconds())
            seconds += _IN_QUEUE.total_seconds()
        return await call_driver(self.name, self._channel.get(), rpc, request, seconds=seconds, metadata=metadata)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if self._token_file is None:
            return self._selection
        token = read_token(self._token_file)
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
