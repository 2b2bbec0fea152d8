"""Builds a node manager from a configuration: the engine behind HTTPS. Needs the extra `web`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from cloudgraft.app.reload import FileComposer
from cloudgraft.app.wiring import Assembly, check_parts
from cloudgraft.config import Config, Problems
from cloudgraft.config.section import convert
from cloudgraft.config.sections.node_manager import NodeManager
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.sdk.errors import InternalError
from cloudgraft.server.ops import OpsServer
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener, WebTls
from cloudgraft.web.tracing import TracedRequests

log = logging.getLogger("cloudgraft.manager")


class NodeManagerServer:
    """A node manager of a configuration."""

    def __init__(self, config: Config, assembly: Assembly, metrics: ServiceMetrics) -> None:
        """Opens nothing yet; raises an error that names what cannot be used."""
        section = section_of(config)
        if assembly.engine is None:
            raise InternalError("a node manager without an engine")  # the configuration was checked
        self.engine: Engine = assembly.engine
        self._provider = EngineProvider(self.engine)
        self._config = config
        self._metrics = metrics
        composer = self.engine.composer
        rules = composer if isinstance(composer, FileComposer) else None
        self.manager = Manager(self.engine, self._provider, rules)
        self.gatekeeper = Gatekeeper(_rules(section), secure=section.tls is not None)
        audit = AuditLog(section.audit_log)
        app = manager_app(self.manager, gatekeeper=self.gatekeeper, audit=audit, metrics=metrics.registry)
        tracer = assembly.traces.tracer
        self.listener = WebListener(
            TracedRequests(app, tracer) if tracer is not None else app,
            listen=section.listen,
            tls=convert(section.tls, WebTls) if section.tls is not None else None,
            connections=section.limits.connections,
            metrics=metrics.listeners,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves for as long as the block lasts."""
        grace = self._config.server.grace.total_seconds()
        async with AsyncExitStack() as stack:
            if self._config.server.ops is not None:
                ops = OpsServer(
                    self._config.server.ops, self._metrics.registry, self.engine.trouble, self._metrics.listeners
                )
                await stack.enter_async_context(ops.running())
            stack.push_async_callback(self._provider.close)
            self.engine.on_fenced = self._fenced
            await self._provider.start()
            await self.listener.open()
            stack.push_async_callback(self.listener.close, grace)
            stack.callback(self.manager.feed.close)  # first: fronts that wait for changes get their answer
            log.info("serving", extra={"address": self.listener.url})
            yield
            log.info("stopping")

    async def _fenced(self) -> None:
        """Redirects fronts that wait for changes to the new leader."""
        self.manager.feed.wake()

    def replace(self, config: Config) -> None:
        """Applies the clients of a changed file."""
        self.gatekeeper.replace(_rules(section_of(config)))


def check_manager(config: Config) -> None:
    """Raises ConfigError with the problems that all parts find in a file that has others too."""
    problems = Problems()
    with problems.collecting():
        check_kind(config)
    with problems.collecting():
        check_parts(config)
    problems.raise_any()


def check_kind(config: Config) -> None:
    """Raises ConfigError for a file that is not one for a node manager."""
    document = config.where().document
    problems = Problems()
    if config.node_manager is None and document.find(("nodeManager",)) is None:
        with problems.collecting():
            section_of(config)
    if config.providers or not (config.clouds or config.node_groups):
        hint = "write clouds and nodeGroups, and no providers: those belong into the file of a front"
        problems.add(document.problem((), "is not one for a node manager", hint))
    problems.raise_any()


def section_of(config: Config) -> NodeManager:
    """The section `nodeManager`. Raises ConfigError without one."""
    if config.node_manager is None:
        raise config.where().error("has no section nodeManager", "write one: it says where to listen, and who may call")
    return config.node_manager


def _rules(section: NodeManager) -> list[ClientRule]:
    return [convert(client, ClientRule, certificate=client.certificate or "") for client in section.clients]
