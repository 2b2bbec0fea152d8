"""Runs the parts beside the server of an engine: cluster watch, admin service, metrics, webhook, reload."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from cloudgraft.admin.methods import engine_methods
from cloudgraft.admin.server import AdminServer
from cloudgraft.app.cluster_events import ClusterEvents
from cloudgraft.app.dock_wiring import DockLink, ListOnDriverEvent
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.journals import rollout
from cloudgraft.app.reload import Reloader
from cloudgraft.app.wiring import admin_place, make_webhook
from cloudgraft.config import Config
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.reporting.metrics import EngineMetrics
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.handover import wait_for_pause
from cloudgraft.server.serve import Running
from cloudgraft.service.metrics import ServiceMetrics

log = logging.getLogger("cloudgraft.app")


class Sidecars:
    """Runs the parts beside the server of an engine: cluster watch, admin service, metrics, webhook, reload."""

    def __init__(
        self,
        engine: Engine,
        link: ClusterLink,
        config: Config,
        metrics: ServiceMetrics,
        make_reloader: Callable[[], Reloader],
        *,
        dock: DockLink | None,
    ) -> None:
        """Subscribes to events from the beginning, including a start that fails."""
        self._engine = engine
        self._link = link
        self._config = config
        self._make_reloader = make_reloader
        self._dock = dock
        self._listeners = metrics.listeners
        self._seconds_since_call = metrics.seconds_since_call
        self._webhook = make_webhook(config)
        EngineMetrics(engine, metrics.registry, webhook=self._webhook)
        if self._webhook is not None:
            engine.writer.subscribe(self._webhook.tell)
        if link.recorder is not None:
            engine.writer.subscribe(ClusterEvents(engine, link.recorder).tell)

    def __call__(self, server: Running) -> AbstractAsyncContextManager[None]:
        """Runs beside a gRPC server, whose clients reconnect when this process no longer leads."""
        self._engine.on_fenced = server.drop_connections
        return self.running(server.transport)

    @asynccontextmanager
    async def running(self, transport: str = "") -> AsyncIterator[None]:
        """Runs all parts while the block lasts. ``transport`` is that of the autoscaler's calls, if there are any."""
        reloader = self._make_reloader()
        methods = engine_methods(self._engine, config_trouble=lambda: reloader.problem, transport=transport)
        if self._dock is not None:
            methods |= self._dock.methods()
        admin = AdminServer(methods, admin_place(self._config), metrics=self._listeners)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._link.running())
            if self._webhook is not None:
                self._webhook.start()
                stack.callback(self._webhook.close)
            if self._dock is not None:
                self._dock.hub.listen(ListOnDriverEvent(self._engine))
                await stack.enter_async_context(self._dock.running(self._leads))
            await admin.start()
            stack.push_async_callback(admin.stop, self._config.server.grace.total_seconds())
            await stack.enter_async_context(reloader.watching())
            yield
            if rollout() and self._engine.hands_over:  # elsewhere, whoever stops a server need not wait
                log.info("waiting for the end of the autoscaler's loop before another replica takes over")
                await wait_for_pause(self._seconds_since_call)

    def _leads(self) -> bool:
        """Whether this process leads: drivers dial in only at the leader."""
        try:
            self._engine.check_leader()
        except CloudgraftError:
            return False
        return True
