"""Connects a cloud of the engine to one key and one machine class of a dock, in this process or elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from cloudgraft.client.driver_calls import created
from cloudgraft.dock.classes.declared import mapping_at, text_at
from cloudgraft.dock.classes.store import MachineClasses
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import Answer, ClassRef, DriverInfo, Key, MachineClass, Operation
from cloudgraft.engine.groups.templates import ARCH, REGION, ZONE
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import (
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
    UnsupportedError,
)
from cloudgraft.sdk.event_loop import in_slices
from cloudgraft.sdk.quantity import InvalidQuantityError, Quantity

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


# -- Slots -------------------------------------------------------------------------------------------------------------


T = TypeVar("T")
_WITHOUT_USER_DATA: Final = "v0"
_SLICE: Final = 5000  # entries of a long response that are converted before the event loop runs other tasks


class Calls(Protocol):
    """The calls of a hub that a slot needs."""

    async def call(self, key: Key, operation: Operation) -> Answer:
        """Calls the key's driver; raises CloudgraftError."""

    def info(self, key: Key) -> DriverInfo | None:
        """What the connected driver declared; None when there is none."""


class DriverSlot(ABC):
    """Calls the driver that is connected under one key, for one machine class."""

    name: str

    @abstractmethod
    async def traits(self) -> DriverTraits | None:
        """The traits that the driver declares; None for none. Raises UnavailableError when it is away."""

    @abstractmethod
    async def create(self, spec: MachineSpec, within: timedelta) -> Machine:
        """As :meth:`cloudgraft.sdk.Driver.create`."""

    @abstractmethod
    async def delete(self, machine: Machine, within: timedelta) -> None:
        """As :meth:`cloudgraft.sdk.Driver.delete`."""

    @abstractmethod
    async def list(self, within: timedelta) -> Sequence[Machine]:
        """As :meth:`cloudgraft.sdk.Driver.list`."""

    @abstractmethod
    async def shapes(self, within: timedelta) -> Sequence[Shape]:
        """As :meth:`cloudgraft.sdk.Driver.shapes`; falls back to the machine class when the driver has none."""

    @abstractmethod
    async def prices(self, within: timedelta) -> Sequence[Price]:
        """As :meth:`cloudgraft.sdk.Driver.prices`."""

    async def close(self) -> None:
        """Called once after the last call."""


class HubSlot(DriverSlot):
    """Calls a driver through the hub of this process."""

    def __init__(self, hub: Calls, classes: MachineClasses | None, key: Key, machine_class: str) -> None:
        self.name = f"the driver of {key}"
        self._hub = hub
        self._classes = classes
        self._key = key
        self._class = machine_class

    async def traits(self) -> DriverTraits | None:
        """Reads the traits of the driver's hello."""
        return self.traits_now()

    def traits_now(self) -> DriverTraits | None:
        """The same without waiting: they are in memory."""
        info = self._hub.info(self._key)
        if info is None:
            raise UnavailableError(f"{self.name} is not connected")
        return info.traits

    async def create(self, spec: MachineSpec, within: timedelta) -> Machine:
        """Rejects a machine of another name; a machine without a name is accepted."""
        info = self._hub.info(self._key)
        if spec.user_data and info is not None and info.protocol == _WITHOUT_USER_DATA:
            raise PreconditionError(
                f"{self.name} speaks the protocol of 2018, in which a machine cannot be given user data: put it into "
                "the secret of the machine class, and leave `join` out for this group"
            )
        answer = await self._call(Verb.CREATE, within, spec=spec)
        if not isinstance(answer, Machine) or not answer.machine_id:
            raise InternalError(f"{self.name} says that it made {spec.name!r}, and not what; a list will tell")
        return created(self.name, spec, answer)

    async def delete(self, machine: Machine, within: timedelta) -> None:
        """Deletes the machine; the response carries nothing."""
        await self._call(Verb.DELETE, within, machine=machine)

    async def list(self, within: timedelta) -> Sequence[Machine]:
        """Lists all machines of the class."""
        return await self._checked(await self._call(Verb.LIST, within), Machine)

    async def shapes(self, within: timedelta) -> Sequence[Shape]:
        """The driver's shapes, else the one of the class."""
        try:
            return await self._checked(await self._call(Verb.SHAPES, within), Shape)
        except UnsupportedError:
            machine_class = self._known_class()
            if machine_class is None:
                raise
            return (shape_of(machine_class),)

    async def prices(self, within: timedelta) -> Sequence[Price]:
        """The driver's prices."""
        return await self._checked(await self._call(Verb.PRICES, within), Price)

    async def _call(self, verb: Verb, within: timedelta, **about: Any) -> Answer:
        return await self._hub.call(
            self._key, Operation(verb=verb, class_ref=self._class_ref(verb), timeout=within, **about)
        )

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
