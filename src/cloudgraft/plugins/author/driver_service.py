"""A driver behind gRPC: the six calls of ``cloudgraft.driver.v1.Driver`` over any :class:`~cloudgraft.sdk.Driver`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Price, Shape
from cloudgraft.server.driver_calls import PAGE, DriverCalls

__all__ = ["DriverService"]


class DriverService(DriverCalls):
    """Answers the calls with one driver."""

    def __init__(self, driver: Driver, *, page: int = PAGE) -> None:
        served = _Served(driver)
        log = logging.getLogger("cloudgraft.driver")
        super().__init__(lambda _: served, log=log, whose="the driver's", page=page)


class _Served:
    """The driver itself, which declares at once what it is like."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def describe(self) -> DriverTraits:
        return self._driver.traits

    async def create(self, spec: MachineSpec) -> Machine:
        return await self._driver.create(spec)

    async def delete(self, machine: Machine) -> None:
        await self._driver.delete(machine)

    async def list(self) -> Sequence[Machine]:
        return await self._driver.list()

    async def shapes(self) -> Sequence[Shape]:
        return await self._driver.shapes()

    async def prices(self) -> Sequence[Price]:
        return await self._driver.prices()
