"""Shares one driver of a cloud between its own groups and routers.

Two drivers would mean two sessions, two plugin processes, and for a cloud that lives in a file, two owners of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape

__all__ = ["Share", "SharedDriver", "share"]


class Share:
    """A driver that is started for its first user and closed after its last; then the next one gets a new one."""

    def __init__(self, make: Callable[[], Driver]) -> None:
        self._make = make
        self._driver: Driver | None = None
        self._users = 0
        self._turn = asyncio.Lock()

    @property
    def driver(self) -> Driver:
        """The one driver; perhaps not started yet."""
        if self._driver is None:
            self._driver = self._make()
        return self._driver

    def handle(self) -> SharedDriver:
        """For one more user."""
        return SharedDriver(self)

    async def enter(self) -> None:
        """One more user; the first waits for the start."""
        async with self._turn:
            if not self._users:
                await self.driver.start()
            self._users += 1

    async def leave(self, *, has_entered: bool) -> None:
        """One user less; after the last one the driver is closed, also when it never came to its feet."""
        async with self._turn:
            self._users -= has_entered
            if not self._users and self._driver is not None:
                driver, self._driver = self._driver, None
                await driver.close()


class SharedDriver(Driver):
    """One user's view of a driver that others use too."""

    def __init__(self, shared: Share) -> None:
        self._share = shared
        self._has_entered = False

    @property
    def inner(self) -> Driver:
        """The driver itself."""
        return self._share.driver

    @property
    def traits(self) -> DriverTraits:  # type: ignore[override]  # as the driver's own, which may be remote
        """What the driver declares."""
        return self.inner.traits

    async def start(self) -> None:
        """Starts the driver, unless another user has."""
        if not self._has_entered:
            await self._share.enter()
            self._has_entered = True

    async def close(self) -> None:
        """Closes the driver, unless another user needs it."""
        has_entered, self._has_entered = self._has_entered, False
        await self._share.leave(has_entered=has_entered)

    async def create(self, spec: MachineSpec) -> Machine:
        """The driver's own."""
        return await self.inner.create(spec)

    async def delete(self, machine: Machine) -> None:
        """The driver's own."""
        await self.inner.delete(machine)

    async def list(self) -> Sequence[Machine]:
        """The driver's own."""
        return await self.inner.list()

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """The driver's own."""
        await self.inner.mark(machine, tags)

    async def shapes(self) -> Sequence[Shape]:
        """The driver's own."""
        return await self.inner.shapes()

    async def prices(self) -> Sequence[Price]:
        """The driver's own."""
        return await self.inner.prices()


# A reload of the configuration makes new declarations, while drivers that did not change are kept: those who use the
# same cloud, before and after, find each other here for as long as one of them is there.
_SHARES: Final[WeakValueDictionary[Hashable, Share]] = WeakValueDictionary()


def share(key: Hashable, make: Callable[[], Driver]) -> Share:
    """The share of this key; ``make`` is used when there is none. The same key means the same options."""
    found = _SHARES.get(key)
    if found is None:
        found = _SHARES[key] = Share(make)
    return found
