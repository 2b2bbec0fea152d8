"""Implements the driver ``router``: several clouds behind one node group, asked in order or by price.

**One machine per intent (law 3).** Within one create, the router asks the next cloud only after the one before has
confirmed that nothing was done (:mod:`cloudgraft.drivers.router.backend`). A timeout, a broken connection or a bug
ends the create with that error: the machine may exist, and only a list can tell. The router remembers nothing between
two creates of one name, because a crash would lose it, and no cloud's token binds another. So it declares that its
create is not idempotent. The engine then waits until a call that it gave up must be over, lists all clouds, and calls
again only when two lists do not have the name. If two clouds still made a machine for one intent, both are in the list
under one name, and the engine keeps one and deletes the other.

**Unavailable clouds.** Their machines cannot be listed, and those of the others must be. The list then says what it is
complete for (:class:`~cloudgraft.sdk.driver.PartialList`): the engine keeps what it knows of machines in the
unavailable cloud, trusts the list for all others, and waits with a create of unknown outcome, which may be in either.
The router orders no machine from that cloud until it lists again. The same holds for a cloud that is no longer in the
configuration: its machines are neither forgotten nor deleted. The list fails only when no cloud answers.

**Ids.** A machine's id is the name of its cloud, a slash, and its id there. Its providerID is its cloud's own.

**Sharing.** The same clouds may serve their own groups: the journal knows a machine by its name and id, whichever cloud
lists it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cloudgraft.drivers.router.backend import (
    Backend,
    Cloud,
    check_alike,
    combined,
    hinted,
    located,
    may_pass_on,
    refused_by_all,
)
from cloudgraft.drivers.router.options import BackendOptions, MachineSettings, Order, RouterOptions
from cloudgraft.drivers.router.share import SharedDriver
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, PartialList, Price, Shape
from cloudgraft.sdk.errors import (
    AlreadyExistsError,
    CloudgraftError,
    InvalidArgumentError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import Taint

# -- shapes and prices -------------------------------------------------------------------------------------------------
# Machine types of several clouds, combined into the router's shapes. The router offers nothing until every cloud has
# reported its shapes once, because shapes that cannot be compared must not be served. After that, the last report of an
# unavailable cloud counts.


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
        return (self._backends[options.cloud].known_prices or {}).get(shape)

    def _shape(self, name: str, options: Sequence[BackendOptions]) -> Shape:
        variants: list[Shape] = []
        problems: list[str] = []
        for backend in options:
            type_, offered = _type_of(backend), self._backends[backend.cloud].known_shapes or {}
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
        currencies = " and ".join(f"{currency} in cloud {cloud}" for currency, cloud in whose.items())
        raise InvalidArgumentError(
            f"the prices of shape {shape} cannot be compared: they are in {currencies}; set `price` for one of them"
        )


# -- the driver --------------------------------------------------------------------------------------------------------

log = logging.getLogger("cloudgraft.drivers.router")

_SLICE: Final = 500  # machines that are put into the list before other tasks run


class RouterDriver(Driver):
    """Several clouds of this file as one: the first that has room makes the machine."""

    Options = RouterOptions
    MachineSettings = MachineSettings
    sets_node_labels = True

    def __init__(self, options: RouterOptions, clouds: Mapping[str, Cloud]) -> None:
        """``clouds`` are the other clouds of the configuration, by name."""
        missing = [name for name in options.clouds if name not in clouds]
        if missing:
            raise InvalidArgumentError(f"there is no cloud {missing[0]} for the router to use")
        self._options = options
        self._backends = {
            name: Backend(name, clouds[name], list_timeout=options.list_timeout) for name in options.clouds
        }
        self._catalog = RouterCatalog(options, self._backends)

    @property
    def traits(self) -> DriverTraits:  # type: ignore[override]  # as those of the backends, which may be remote
        """The traits that hold in all of its clouds."""
        listed = (backend.driver.traits for backend in self._backends.values() if backend.has_listed)
        return combined(tuple(backend.driver.traits for backend in self._backends.values()), tuple(listed))

    def used(self) -> Sequence[Driver]:
        """The drivers of its clouds."""
        return [backend.driver for backend in self._backends.values()]

    async def start(self) -> None:
        """Starts the drivers. A later call starts the driver of a cloud that is unavailable now."""
        ended = await asyncio.gather(*(self._start(backend) for backend in self._backends.values()))
        errors = {name: error for name, error in zip(self._backends, ended, strict=True) if error is not None}
        if len(errors) == len(self._backends):
            raise refused_by_all(errors)
        self._check()

    async def close(self) -> None:
        """Closes the drivers."""
        await asyncio.gather(*(backend.close() for backend in self._backends.values()))

    async def create(self, spec: MachineSpec) -> Machine:
        """Asks one cloud after the other, until one accepts, or fails with an unknown outcome."""
        self._check()
        shape = str(spec.settings.get("shape", ""))
        refusals: dict[str, CloudgraftError] = {}
        for options in self._in_turn(shape):
            backend = self._backends[options.cloud]
            if backend.away:
                refusals[backend.name] = UnavailableError(f"is away: {backend.away}")
                continue
            try:
                machine = await backend.create(_for(options, backend, spec))
            except CloudgraftError as error:
                if may_pass_on(error):
                    self._passed_over(backend, shape, error)
                    refusals[backend.name] = error
                    continue
                if error.leaves_open and not isinstance(error, AlreadyExistsError):
                    backend.cool_down(shape, self._options.cool_down.total_seconds())
                raise located(error, backend.name) from error
            else:
                backend.cool_down(shape, 0.0)
                return machine
        raise refused_by_all(refusals)

    async def delete(self, machine: Machine) -> None:
        """Asks the cloud that the machine is in."""
        backend = self._backend_of(machine)
        try:
            await backend.delete(machine)
        except CloudgraftError as error:
            raise located(error, backend.name) from error

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Asks the cloud that the machine is in, if it supports marks."""
        backend = self._backend_of(machine)
        try:
            await backend.mark(machine, tags)
        except CloudgraftError as error:
            raise located(error, backend.name) from error

    async def list(self) -> Sequence[Machine]:
        """Returns the machines of all clouds that answer, and the scope of the list; raises when none answers."""
        ended = await asyncio.gather(*(backend.list() for backend in self._backends.values()))
        self._check()
        machines: list[Machine] = []
        complete_for: list[str] = []
        is_whole = True
        errors: dict[str, CloudgraftError] = {}
        for backend, found in zip(self._backends.values(), ended, strict=True):
            if isinstance(found, CloudgraftError):
                errors[backend.name] = found
                continue
            complete_for += backend.complete_for(found)
            is_whole &= not isinstance(found, PartialList) or found.is_whole
            async for some in in_slices(found, _SLICE):
                machines += map(backend.shown, some)
            await asyncio.sleep(0)
        if len(errors) == len(self._backends):
            raise refused_by_all(errors)
        return PartialList(machines, complete_for=complete_for, is_whole=is_whole and not errors)

    async def shapes(self) -> Sequence[Shape]:
        """Returns the router's own shapes, each with its variants in the clouds."""
        return await self._catalog.shapes()

    async def prices(self) -> Sequence[Price]:
        """Returns the price of each shape in the most expensive of its clouds."""
        return await self._catalog.prices()

    def _backend_of(self, machine: Machine) -> Backend:
        name, slash, _ = machine.machine_id.partition("/")
        if not slash:
            raise InvalidArgumentError(f"{machine.machine_id!r} is no id of a router: those are like cloud/id")
        backend = self._backends.get(name)
        if backend is None:
            # Not NotFoundError: that would mean that it is gone.
            raise PreconditionError(
                f"machine {machine.machine_id} is in a cloud that this router does not use any more; put it back into "
                "the configuration until its machines are gone"
            )
        return backend

    def _check(self) -> None:
        """Refuses incompatible clouds, as soon as the traits of each are known."""
        known = {name: backend.driver.traits for name, backend in self._backends.items() if backend.is_started}
        if known:
            check_alike(known)

    async def _start(self, backend: Backend) -> CloudgraftError | None:
        try:
            await backend.start()
        except CloudgraftError as error:
            return error
        return None

    def _in_turn(self, shape: str) -> Sequence[BackendOptions]:
        """Orders the backends: those that refused this shape lately come last."""
        ordered = self._catalog.ordered(shape)
        return sorted(ordered, key=lambda options: self._backends[options.cloud].is_cooling(shape))

    def _passed_over(self, backend: Backend, shape: str, error: CloudgraftError) -> None:
        if not backend.is_cooling(shape):
            log.warning(
                "a backend refused a machine and is asked last for a while",
                extra={"cloud": backend.name, "shape": shape, "error": error.message},
            )
        backend.cool_down(shape, max(hinted(error) or 0.0, self._options.cool_down.total_seconds()))


def drivers_within(driver: Driver) -> Iterator[Driver]:
    """Yields the innermost drivers: those of a router, a shared one, or the driver itself."""
    if isinstance(driver, RouterDriver):
        for used in driver.used():
            yield from drivers_within(used)
    elif isinstance(driver, SharedDriver):
        yield driver.inner
    else:
        yield driver


def _for(options: BackendOptions, backend: Backend, spec: MachineSpec) -> MachineSpec:
    """Returns the spec for this cloud: with its own section, and the labels and taints of the group's nodes."""
    given = {key: spec.settings[key] for key in sorted(backend.takes) if key in spec.settings}
    return replace(spec, settings={**given, **options.machine})
