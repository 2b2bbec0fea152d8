"""Builds a dock from the configuration: access, machine classes, hub and port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from cloudgraft.admin.methods import Method, dock_methods
from cloudgraft.config import Config, ConfigError
from cloudgraft.config.sections.dock import Dock
from cloudgraft.dock.access import CallerAccess, rules_of
from cloudgraft.dock.classes.feed import ClassFeed
from cloudgraft.dock.driver import DockDriver
from cloudgraft.dock.hub.hub import Hub, HubSettings
from cloudgraft.dock.hub.listener import DockListener, DockTlsFiles
from cloudgraft.dock.hub.metrics import DockMetrics
from cloudgraft.dock.hub.standalone import EngineService
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.drivers.router.driver import drivers_within
from cloudgraft.engine.engine import Engine
from cloudgraft.kube.connect import connect, connect_in_cluster
from cloudgraft.net.metrics import ListenerMetrics
from cloudgraft.sdk.errors import CloudgraftError, UnavailableError

if TYPE_CHECKING:
    from cloudgraft.kube.client import KubeClient  # needs an extra

__all__ = ["DockLink", "Looks"]


log = logging.getLogger("cloudgraft.dock")

_LOOK_EVERY: Final = 1.0  # seconds between two looks at who leads
_GRACE: Final = 10.0  # seconds for operations in flight when the dock closes
_FIXED: Final[Mapping[str, Callable[[Dock], object]]] = {
    "dock.listen": lambda dock: dock.listen,
    "dock.tls": lambda dock: dock.tls,
    "dock.heartbeat": lambda dock: dock.heartbeat,
    "dock.kubernetes": lambda dock: dock.kubernetes,
    "dock.limits": lambda dock: dock.limits,
}


class DockLink:
    """The dock of one configuration. It is kept for as long as the process runs.

    :attr:`hub` and :attr:`classes` are what a cloud with ``driver: dock`` is made with.
    """

    def __init__(
        self, config: Config, dock: Dock, *, for_engines: bool = False, metrics: ListenerMetrics | None = None
    ) -> None:
        """Opens nothing yet. ``for_engines`` says that it is there for engines that run elsewhere; without it only
        those of `dock.engines` may use its drivers.

        Raises ConfigError with what is wrong with `dock`.
        """
        self._dock = dock
        try:
            self._client = _client(config) if dock.kubernetes is not None else None
            self.access = CallerAccess(rules_of(dock), secure=dock.tls is not None, for_engines=for_engines)
            self._feed = ClassFeed(dock, client=self._client)
            self.classes = self._feed.store
            settings = replace(
                HubSettings.beating(dock.heartbeat.total_seconds()), max_connections=dock.limits.connections
            )
            self.hub = Hub(access=self.access, classes=self.classes, settings=settings)
            self._engines = EngineService(self.hub, self.classes, self.access)
            handlers = [*self.hub.handlers(), self._engines.handler()]
            self.listener = DockListener(
                handlers, listen=dock.listen, tls=_tls(dock), settings=settings, access=self.access, metrics=metrics
            )
            self.access.watch = self.listener.watch
        except ConfigError:
            raise
        except CloudgraftError as error:
            where = config.where("dock")
            raise ConfigError([where.document.problem(where.path, error.message)]) from error

    def register(self, registry: CollectorRegistry) -> None:
        """Shows the dock in ``/metrics``."""
        DockMetrics(self.hub, registry)

    def methods(self) -> dict[str, Method]:
        """What operators may ask of it."""
        return dock_methods(self.hub.drivers)

    def replace(self, dock: Dock | None) -> None:
        """Takes the drivers, engines and classes of a file that has changed; without a section, nobody may call."""
        fixed = [key for key, value in _FIXED.items() if dock is not None and value(dock) != value(self._dock)]
        if fixed:
            log.warning("a change of these needs a restart: %s", ", ".join(fixed))
        if dock is None:
            log.warning("the section dock is gone: nobody may dial in, and a restart closes the port")
            self.access.shut()
            return
        self.access.replace(rules_of(dock))
        self._feed.replace(dock)

    @asynccontextmanager
    async def running(
        self, may_serve: Callable[[], bool] | None = None, *, look_every: float = _LOOK_EVERY
    ) -> AsyncIterator[None]:
        """Serves drivers for as long as the block lasts.

        With ``may_serve`` the port is open only while that is true: drivers then find the process that leads.
        """
        async with AsyncExitStack() as stack:
            if self._client is not None:
                stack.push_async_callback(self._client.close)
            await stack.enter_async_context(self._feed.running())
            tasks = [asyncio.create_task(self.access.run(), name="tokens of drivers")]
            stack.push_async_callback(self._close)
            stack.push_async_callback(_end, tasks)  # first: it must not open again what is being closed
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
        """Opens the port when this process begins to lead, and cuts all drivers off when it leads no more."""
        while True:
            await asyncio.sleep(look_every)
            if may_serve() and not self.listener.is_open:
                try:
                    await self._open()
                except UnavailableError as error:  # it is tried again
                    log.warning("drivers cannot dial in: %s", error.message)
            elif not may_serve() and self.listener.is_open:
                log.info("drivers are sent away: this process does not lead")
                await self.listener.close(0)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _tls(dock: Dock) -> DockTlsFiles | None:
    if dock.tls is None:
        return None
    return DockTlsFiles(cert=dock.tls.cert, key=dock.tls.key, client_ca=dock.tls.client_ca)


def _client(config: Config) -> KubeClient | None:
    """A way to the cluster of its own: classes are read also where no machine joins."""
    wanted = config.kubernetes
    if wanted is None:
        return None
    try:
        return connect(wanted.kubeconfig) if wanted.kubeconfig is not None else connect_in_cluster()
    except CloudgraftError as error:
        where = config.where("kubernetes", "inCluster" if wanted.in_cluster else "kubeconfig")
        raise ConfigError([where.document.problem(where.path, error.message)]) from error


# -- Has an engine look at a cloud when its driver has come, has gone, or has told something late ----------------------


_AT_MOST_EVERY: Final = 1.0  # seconds between two looks for one driver, however often it comes and goes


class Looks:
    """A listener of a hub. Without it the engine would find out with its next list, which may be far off."""

    def __init__(self, engine: Engine, *, at_most_every: float = _AT_MOST_EVERY) -> None:
        self._engine = engine
        self._pause = at_most_every
        self._resting: dict[Key, bool] = {}  # drivers looked for just now, and whether they have called again since

    def __call__(self, key: Key) -> None:
        """Something has happened to the driver of these machines."""
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
