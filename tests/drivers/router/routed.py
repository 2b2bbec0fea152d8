"""Clouds in memory that refuse, hang and hide as a test wants, and routers over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from cloudgraft.drivers.router.backend import Cloud
from cloudgraft.drivers.router.driver import RouterDriver
from cloudgraft.drivers.router.options import BackendOptions, BackendPrice, Order, RouterOptions
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, Price, Shape
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

CAPACITY = {"cpu": Quantity("2"), "memory": Quantity("4Gi"), "pods": Quantity(110)}


class Place(Driver):
    """One cloud. ``refuses`` is raised by the next creates, ``is_late`` makes them all the same and then raises."""

    def __init__(self, traits: DriverTraits | None = None, *, shapes: Sequence[Shape] | None = None) -> None:
        self.traits = traits or DriverTraits(idempotency=Idempotency.TOKEN)
        self.offered = [a_shape()] if shapes is None else shapes
        self.asked_prices: Sequence[Price] = ()
        self.machines: dict[str, Machine] = {}
        self.specs: list[MachineSpec] = []
        self.deleted: list[str] = []
        self.refuses: CloudgraftError | None = None
        self.is_late = False
        self.down: CloudgraftError | None = None  # every call but create is refused so
        self.hides: CloudgraftError | None = None  # every list is refused so
        self.starts = self.closes = 0

    async def start(self) -> None:
        if self.down:
            raise self.down
        self.starts += 1

    async def close(self) -> None:
        self.closes += 1

    async def create(self, spec: MachineSpec) -> Machine:
        self.specs.append(spec)
        if self.refuses is not None and not self.is_late:
            raise self.refuses
        known = next((m for m in self.machines.values() if m.name == spec.name), None)
        number = f"id-{len(self.machines) + len(self.deleted)}"
        machine = known or Machine(
            name=spec.name, machine_id=number, provider_id=f"cloud://{id(self)}/{number}", tags=dict(spec.tags)
        )
        self.machines[machine.machine_id] = machine
        if self.refuses is not None:
            raise self.refuses
        return machine

    async def delete(self, machine: Machine) -> None:
        if self.down:
            raise self.down
        self.deleted.append(machine.machine_id)
        self.machines.pop(machine.machine_id, None)

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        given = {key: value for key, value in {**machine.tags, **tags}.items() if value is not None}
        self.machines[machine.machine_id] = replace(machine, tags=given)

    async def list(self) -> Sequence[Machine]:
        if trouble := self.down or self.hides:
            raise trouble
        return list(self.machines.values())

    async def shapes(self) -> Sequence[Shape]:
        if self.down:
            raise self.down
        return self.offered

    async def prices(self) -> Sequence[Price]:
        if self.down:
            raise self.down
        return self.asked_prices


def a_shape(
    name: str = "small",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    **capacity: str,
) -> Shape:
    amounts = {key.replace("_", "-"): Quantity(value) for key, value in capacity.items()}
    return Shape(name=name, capacity={**CAPACITY, **amounts}, labels=labels or {}, taints=taints)


def an_hour(hourly: str, shape: str = "small", currency: str = "EUR") -> Price:
    return Price(shape=shape, hourly=Decimal(hourly), currency=currency)


def options(*clouds: str, prices: Mapping[str, str] | None = None, **changes: Any) -> RouterOptions:
    """One shape, ``any``, which is ``small`` in each of these clouds."""
    given = {name: BackendPrice(hourly=Decimal(text), currency="EUR") for name, text in (prices or {}).items()}
    backends = [BackendOptions(cloud=name, machine={"shape": "small"}, price=given.get(name)) for name in clouds]
    return RouterOptions(**{"shapes": {"any": backends}, **changes})


def router(places: Mapping[str, Driver], *, order: Order = Order.LISTED, **changes: Any) -> RouterDriver:
    """In the order of the mapping."""
    made = options(*places, **{"order": order, "cool_down": timedelta(minutes=1), **changes})
    return RouterDriver(made, {name: Cloud(make=_giver(place)) for name, place in places.items()})


def _giver(place: Driver) -> Any:
    return lambda: place


def a_spec(name: str = "m-1", **settings: object) -> MachineSpec:
    return MachineSpec(name=name, group="g", settings={"shape": "any", **settings}, tags={"t": name})
