"""Combines machine types of several clouds into a router's shapes, and computes their prices.

The router offers nothing until every cloud has reported its shapes once, because shapes that cannot be compared must
not be served. After that, the last report of an unavailable cloud counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace

from cloudgraft.drivers.router.backend import Backend
from cloudgraft.drivers.router.options import BackendOptions, Order, RouterOptions
from cloudgraft.sdk.driver import Price, Shape
from cloudgraft.sdk.errors import InvalidArgumentError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint


class RouterCatalog:
    """The shapes of one router."""

    def __init__(self, options: RouterOptions, backends: Mapping[str, Backend]) -> None:
        self._options = options
        self._backends = backends

    async def shapes(self) -> Sequence[Shape]:
        """Returns every shape, with its variants in the clouds."""
        await _all([backend.shapes() for backend in self._backends.values()])
        return [self._shape(name, options) for name, options in self._options.shapes.items()]

    async def prices(self) -> Sequence[Price]:
        """Returns for each shape the price in the most expensive of its clouds: the highest possible cost (law 10).

        A shape without a price in one of them has none: a budget that counts only some machines would not protect.
        """
        await _all([backend.prices() for backend in self._backends.values()])
        found = []
        for name, options in self._options.shapes.items():
            prices = [self.price(backend) for backend in options]
            known = [price for price in prices if price is not None]
            _check_currency(name, options, prices)
            if len(known) == len(prices):
                dearest = max(known, key=lambda price: price.hourly)
                found.append(Price(shape=name, hourly=dearest.hourly, currency=dearest.currency))
        return found

    def ordered(self, shape: str) -> list[BackendOptions]:
        """Returns the backends of this shape, the best first; raises when there is no such shape."""
        options = self._options.shapes.get(shape)
        if options is None:
            there = ", ".join(sorted(self._options.shapes))
            raise InvalidArgumentError(f"this router has no shape {shape!r}; there is: {there[:500]}")
        if self._options.order is Order.LISTED:
            return list(options)
        prices = {backend.cloud: self.price(backend) for backend in options}
        priced = [backend for backend in options if prices[backend.cloud] is not None]
        priced.sort(key=lambda backend: price.hourly if (price := prices[backend.cloud]) else 0)
        return [*priced, *(backend for backend in options if prices[backend.cloud] is None)]

    def price(self, options: BackendOptions) -> Price | None:
        """Returns the price per hour there, if it is known."""
        shape = _type_of(options)
        if options.price is not None:
            return Price(shape=shape, hourly=options.price.hourly, currency=options.price.currency)
        return (self._backends[options.cloud].told.prices or {}).get(shape)

    def _shape(self, name: str, options: Sequence[BackendOptions]) -> Shape:
        variants: list[Shape] = []
        problems: list[str] = []
        for backend in options:
            type_, offered = _type_of(backend), self._backends[backend.cloud].told.shapes or {}
            found = offered.get(type_)
            if found is None and offered and type_:
                there = ", ".join(sorted(offered))
                problems.append(f"cloud {backend.cloud} has no machine type {type_!r}; there is: {there[:500]}")
            if found is not None and found.problem:
                problems.append(f"cloud {backend.cloud}: {found.problem}")
            whose = f"{backend.cloud}/{type_}" if type_ else backend.cloud
            variants += _variants_of(found or Shape(name=whose, capacity={}), whose)
        return Shape(
            name=name,
            capacity=_least(variants),
            labels=_common_labels(variants),
            taints=_common_taints(variants),
            variants=tuple(variants),
            problem="; ".join(problems),
        )


async def _all(calls: Sequence[Awaitable[object]]) -> None:
    """Awaits all concurrently; raises the first error when all have ended."""
    for ended in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


def _type_of(options: BackendOptions) -> str:
    """Returns the machine type in its cloud; empty where machines are described in another way."""
    return str(options.machine.get("shape", ""))


def _variants_of(shape: Shape, whose: str) -> list[Shape]:
    """Returns the variants of one cloud's type: the type itself, unless the cloud reports several."""
    if not shape.variants:
        return [replace(shape, name=whose, problem="")]
    return [replace(one, name=f"{whose}/{one.name}", variants=(), problem="") for one in shape.variants]


def _least(variants: Sequence[Shape]) -> dict[str, Quantity]:
    first, *others = variants
    return {
        name: min(amount, *(other.capacity[name] for other in others)) if others else amount
        for name, amount in first.capacity.items()
        if all(name in other.capacity for other in others)
    }


def _common_labels(variants: Sequence[Shape]) -> dict[str, str]:
    first, *others = variants
    return {k: v for k, v in first.labels.items() if all(other.labels.get(k) == v for other in others)}


def _common_taints(variants: Sequence[Shape]) -> tuple[Taint, ...]:
    first, *others = variants
    return tuple(taint for taint in first.taints if all(taint in other.taints for other in others))


def _check_currency(shape: str, options: Sequence[BackendOptions], prices: Sequence[Price | None]) -> None:
    whose: dict[str, str] = {}
    for backend, price in zip(options, prices, strict=True):
        if price is not None:
            whose.setdefault(price.currency, backend.cloud)
    if len(whose) > 1:
        told = " and ".join(f"{currency} in cloud {cloud}" for currency, cloud in whose.items())
        raise InvalidArgumentError(
            f"the prices of shape {shape} cannot be compared: they are in {told}; set `price` for one of them"
        )
