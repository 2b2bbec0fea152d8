"""A driver as a server of its own: the second way of the proposal, for drivers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from cloudgraft.plugins.author.driver_server import DriverServer
from cloudgraft.sdk.driver import Driver
from cloudgraft.server.listener import Access
from cloudgraft.server.signals import StopSignals
from cloudgraft.server.tls import TlsFiles

__all__ = ["serve_driver_until_told"]

log = logging.getLogger("cloudgraft.driver")

_GRACE = 10.0  # seconds for calls in flight


async def serve_driver_until_told(
    driver: Driver, *, listen: str, tls: TlsFiles | None, allowed_clients: Collection[str]
) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = DriverServer(driver, Access(listen=listen, tls=tls, allowed_clients=allowed_clients))
    with StopSignals() as told:
        try:
            await driver.start()
            await server.start()
            log.warning("serving on %s", server.address, extra={"address": server.address, "tls": tls is not None})
            await told.wait()
        except asyncio.CancelledError:
            if not told.while_starting:
                raise
        finally:
            await server.stop(_GRACE)
            await driver.close()
