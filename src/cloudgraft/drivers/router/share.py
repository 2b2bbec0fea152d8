"""Shares one driver of a cloud between its own groups and routers.

Two drivers would mean two sessions, two plugin processes, and two owners of the file of a cloud that is stored in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape


class Share:
    """Starts a driver for its first user and closes it after its last; the next user gets a new one."""

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
        """Returns a handle for one more user."""
        return SharedDriver(self)

    async def enter(self) -> None:
        """Adds a user; the first one starts the driver."""
        async with self._turn:
            if not self._users:
                await self.driver.start()
            self._users += 1

    async def leave(self, *, has_entered: bool) -> None:
        """Removes a user; after the last one it closes the driver, even if that never started."""
        async with self._turn:
            self._users -= has_entered
            if not self._users and self._driver is not None:
                driver, self._driver = self._driver, None
                await driver.close()


class SharedDriver(Driver):
    """One user's handle of a shared driver."""

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

    def known_shapes(self) -> Sequence[Shape] | None:
        """Delegates to the driver."""
        return self.inner.known_shapes()

    def missing(self) -> Mapping[str, str]:
        """Delegates to the driver."""
        return self.inner.missing()

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
        """Delegates to the driver."""
        return await self.inner.create(spec)

    async def delete(self, machine: Machine) -> None:
        """Delegates to the driver."""
        await self.inner.delete(machine)

    async def list(self) -> Sequence[Machine]:
        """Delegates to the driver."""
        return await self.inner.list()

    async def mark(self, machine: Machine, tags: Mapping[str, str | None]) -> None:
        """Delegates to the driver."""
        await self.inner.mark(machine, tags)

    async def shapes(self) -> Sequence[Shape]:
        """Delegates to the driver."""
        return await self.inner.shapes()

    async def prices(self) -> Sequence[Price]:
        """Delegates to the driver."""
        return await self.inner.prices()


# A reload of the configuration creates new declarations and keeps unchanged drivers. Old and new users of a cloud find
# the same share here as long as one of them exists.
_SHARES: Final[WeakValueDictionary[Hashable, Share]] = WeakValueDictionary()


def share(key: Hashable, make: Callable[[], Driver]) -> Share:
    """Returns the share of this key, or creates it with ``make``. The same key means the same options."""
    found = _SHARES.get(key)
    if found is None:
        found = _SHARES[key] = Share(make)
    return found
