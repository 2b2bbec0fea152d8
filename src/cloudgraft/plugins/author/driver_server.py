"""The gRPC listener of a driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry

from cloudgraft.net.metrics import ListenerMetrics
from cloudgraft.plugins.author.driver_service import DriverService
from cloudgraft.sdk.driver import Driver
from cloudgraft.server.listener import Access, Listener
from cloudgraft.wire.driver import SERVICE

__all__ = ["DriverServer"]

_LONGEST_MESSAGE: Final = 16 * 1024 * 1024  # user data is part of a request


class DriverServer:
    """One listening address for one driver. The driver's own start and close are the caller's."""

    def __init__(self, driver: Driver, access: Access) -> None:
        """Prepares a listener; :meth:`start` opens it."""
        self._service = DriverService(driver)
        self._listener = Listener(
            self._service.handler(),
            replace(access, limits=replace(access.limits, message_bytes=_LONGEST_MESSAGE)),
            service_name=SERVICE,
            name="driver",
            metrics=ListenerMetrics(CollectorRegistry()),
        )

    @property
    def address(self) -> str:
        """Where it listens, with the real port."""
        return self._listener.address

    async def start(self) -> None:
        """Opens the port and begins to serve; raises UnavailableError when the port cannot be had."""
        await self._listener.start()

    async def stop(self, grace: float) -> None:
        """Refuses new calls, lets those in flight end for at most ``grace`` seconds, then closes."""
        await self._listener.stop(grace)
        await self._service.drain(grace)
