"""Builds a dock from the configuration: access, machine classes, hub and port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry

from cloudgraft.admin.methods import Method, dock_methods
from cloudgraft.app.joining_wiring import client_of
from cloudgraft.config import Config, ConfigError
from cloudgraft.config.section import changed_keys, convert
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.access import CallerAccess, rules_of
from cloudgraft.dock.classes.feed import ClassFeed
from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.hub.engine_service import EngineService
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.listener import DockListener
from cloudgraft.dock.hub.metrics import DockMetrics
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.drivers.router.driver import drivers_within
from cloudgraft.engine.engine import Engine
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError
from cloudgraft.server.tls import ServerFiles

log = logging.getLogger("cloudgraft.dock")

_LOOK_EVERY: Final = 1.0  # seconds between two checks whether this process leads
_GRACE: Final = 10.0  # seconds for operations in flight when the dock closes
_REPLACED: Final = {
    "drivers",
    "engines",
    "classes",
    "classes_dir",
    "allow_local_secrets",
}  # a change of these needs no restart


class DockLink:
    """The dock of one configuration. It lives as long as the process.

    A cloud with ``driver: dock`` is built with :attr:`hub` and :attr:`classes`.
    """

    def __init__(
        self, config: Config, dock: Dock, *, for_engines: bool = False, metrics: ListenerMetrics | None = None
    ) -> None:
        """Opens nothing yet. ``for_engines`` says that the dock serves engines that run elsewhere; without it only
        those of `dock.engines` may use its drivers.

        Raises ConfigError with every error of `dock`.
        """
        self._dock = dock
        try:
            # A client of its own: classes are read even where no machine joins.
            self._client = client_of(config) if dock.kubernetes is not None else None
            self.access = CallerAccess(
                rules_of(dock),
                secure=dock.tls is not None,
                for_engines=for_engines,
                local_secrets=dock.allow_local_secrets,
            )
            self._feed = ClassFeed(dock, client=self._client)
            self.classes = self._feed.store
            settings = replace(
                HubSettings.beating(dock.heartbeat.total_seconds()), max_connections=dock.limits.connections
            )
            self.hub = Hub(access=self.access, classes=self.classes, settings=settings)
            self._engines = EngineService(self.hub, self.classes, self.access)
            tls = convert(dock.tls, ServerFiles) if dock.tls is not None else None
            handlers = [*self.hub.handlers(), self._engines.handler()]
            self.listener = DockListener(
                handlers, listen=dock.listen, tls=tls, settings=settings, access=self.access, metrics=metrics
            )
            self.access.watch = self.listener.watch
        except ConfigError:
            raise
        except CloudgraftError as error:
            raise config.where("dock").error(error.message) from error

    def register(self, registry: CollectorRegistry) -> None:
        """Adds the dock's metrics to ``/metrics``."""
        DockMetrics(self.hub, registry)

    def methods(self) -> dict[str, Method]:
        """The dock's admin methods."""
        return dock_methods(self.hub.drivers)

    def replace(self, dock: Dock | None) -> None:
        """Applies the drivers, engines and classes of a changed file; without a section, no client may call."""
        fixed = [f"dock.{key}" for key in changed_keys(self._dock, dock, _REPLACED)] if dock is not None else []
        if fixed:
            log.warning("a change of these needs a restart: %s", ", ".join(fixed))
        if dock is None:
            log.warning("the section dock was removed: no driver may dial in; a restart closes the port")
            self.access.shut()
            return
        self.access.replace(rules_of(dock), local_secrets=dock.allow_local_secrets)
        self._feed.replace(dock)

    @asynccontextmanager
    async def running(
        self, may_serve: Callable[[], bool] | None = None, *, look_every: float = _LOOK_EVERY
    ) -> AsyncIterator[None]:
        """Serves drivers for as long as the block lasts.

        With ``may_serve`` the port is open only while that is true, so that drivers find the leader.
        """
        async with AsyncExitStack() as stack:
            if self._client is not None:
                stack.push_async_callback(self._client.close)
            await stack.enter_async_context(self._feed.running())
            tasks = [asyncio.create_task(self.access.run(), name="tokens of drivers")]
            stack.push_async_callback(self._close)
            stack.push_async_callback(_end, tasks)  # first: the tasks must not reopen the port while it closes
            if may_serve is None or may_serve():
                await self._open()
            if may_serve is not None:
                tasks.append(asyncio.create_task(self._follow(may_serve, look_every), name="dock"))
            yield

    async def _open(self) -> None:
        await self.listener.open()
        log.info(
            "serving drivers that dial in", extra={"address": self.listener.address, "tls": self.listener.is_encrypted}
        )

    async def _close(self) -> None:
        await self.hub.close(_GRACE if self.listener.is_open else 0.0)
        await self._engines.drain(1.0)
        await self.listener.close(1.0)

    async def _follow(self, may_serve: Callable[[], bool], look_every: float) -> None:
        """Opens the port when this process begins to lead, and disconnects all drivers when it no longer leads."""
        while True:
            await asyncio.sleep(look_every)
            if may_serve() and not self.listener.is_open:
                try:
                    await self._open()
                except UnavailableError as error:  # it is tried again
                    log.warning("drivers cannot dial in: %s", error.message)
            elif not may_serve() and self.listener.is_open:
                log.info("disconnecting all drivers: this process does not lead")
                self.hub.disconnect("this process does not lead any more")
                await self.listener.close(0)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# -- driver events -----------------------------------------------------------------------------------------------------
# Makes the engine list a cloud when its driver has connected, disconnected, or answered late.


_AT_MOST_EVERY: Final = 1.0  # seconds between two lists for one driver, at least, however often it reconnects


class ListOnDriverEvent:
    """Listens to a hub. Without it the engine would notice only at its next list, which may be much later."""

    def __init__(self, engine: Engine, *, at_most_every: float = _AT_MOST_EVERY) -> None:
        self._engine = engine
        self._pause = at_most_every
        self._resting: dict[Key, bool] = {}  # drivers whose cloud was just listed, and whether another event came

    def __call__(self, key: Key) -> None:
        """Handles an event of the driver of these machines."""
        if key in self._resting:
            self._resting[key] = True
            return
        self._resting[key] = False
        asyncio.get_running_loop().call_later(self._pause, self._rested, key)
        self._look(key)

    def _rested(self, key: Key) -> None:
        if self._resting.pop(key):
            self(key)

    def _look(self, key: Key) -> None:
        for worker in self._engine.workers.values():
            if any(isinstance(one, DockDriver) and one.key == key for one in drivers_within(worker.driver)):
                worker.nudge()
