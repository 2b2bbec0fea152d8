"""Lists the machine types on offer, with their hourly prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.flaws import Flaws
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.simcloud.options import ShapeOptions, SimulatedOptions

DEFAULT_SHAPES: Final[Mapping[str, ShapeOptions]] = {
    "small": ShapeOptions(cpu=2, memory="4Gi", ephemeral_storage="40Gi", hourly=Decimal("0.02")),
    "medium": ShapeOptions(cpu=4, memory="16Gi", ephemeral_storage="80Gi", hourly=Decimal("0.06")),
    "large": ShapeOptions(cpu=8, memory="32Gi", ephemeral_storage="160Gi", hourly=Decimal("0.12")),
    "gpu": ShapeOptions(
        cpu=8, memory="32Gi", ephemeral_storage="160Gi", extra={"nvidia.com/gpu": 1}, hourly=Decimal("1.50")
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A shape with its price."""

    shape: Shape
    hourly: Decimal | None


class Catalog:
    """All shapes on offer: the defaults, and those of the options, which may replace them."""

    def __init__(self, options: SimulatedOptions) -> None:
        self.currency = options.currency
        shapes = {**DEFAULT_SHAPES, **options.shapes}
        flaws = Flaws()
        for key, names in (("prices", options.prices), ("stock", options.stock)):
            for unknown in sorted(set(names) - set(shapes)):
                flaws.tell((key, unknown), f"there is no such shape; {_there_is(shapes)}")
        flaws.raise_any()
        self._offers = {
            name: Offer(shape=_shape(name, shape), hourly=options.prices.get(name, shape.hourly))
            for name, shape in shapes.items()
        }

    def __getitem__(self, shape: str) -> Offer:
        try:
            return self._offers[shape]
        except KeyError:
            raise InvalidArgumentError(f"there is no shape {shape[:60]!r}; {_there_is(self._offers)}") from None

    def shapes(self) -> list[Shape]:
        """Every shape, in the order in which they were declared."""
        return [offer.shape for offer in self._offers.values()]

    def prices(self) -> list[Price]:
        """The price of each shape that has one."""
        return [
            Price(shape=name, hourly=offer.hourly, currency=self.currency)
            for name, offer in self._offers.items()
            if offer.hourly is not None
        ]


def _there_is(names: Mapping[str, object]) -> str:
    return f"there is: {', '.join(names)}"


def _shape(name: str, options: ShapeOptions) -> Shape:
    amounts = {
        "cpu": options.cpu,
        "memory": options.memory,
        "pods": options.pods,
        "ephemeral-storage": options.ephemeral_storage,
        **options.extra,
    }
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": name,
        **options.labels,
    }
    capacity = {resource: Quantity(amount) for resource, amount in amounts.items()}
    return Shape(name=name, capacity=capacity, labels=labels)
