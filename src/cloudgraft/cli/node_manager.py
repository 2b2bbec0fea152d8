"""``cloudgraft node-manager``: serves the engine over HTTPS, for fronts and for operators."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import click

from cloudgraft.app import logs
from cloudgraft.app.memory_dumps import forbid_memory_dumps
from cloudgraft.app.reload import FileComposer, Reloader, WatchedFile
from cloudgraft.app.wiring import Assembly, assemble, check_parts
from cloudgraft.cli.serve import Sidecars
from cloudgraft.cli.terminal import check_option, config_option
from cloudgraft.config import Config, Problems, load
from cloudgraft.config.section import convert
from cloudgraft.config.sections.node_manager import NodeManager
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.sdk.errors import InternalError
from cloudgraft.server.ops import OpsServer
from cloudgraft.server.serve import settle
from cloudgraft.server.signals import run_until_signal
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener, WebTls

log = logging.getLogger("cloudgraft.manager")


@click.command("node-manager")
@config_option("The configuration file, with a section `nodeManager` (docs/reference/configuration.md).")
@click.option("--listen", help="Address to listen on, instead of the file's nodeManager.listen.")
@check_option
@logs.options
def command(path: Path, listen: str | None, verbosity: int | None, log_format: str | None, *, check: bool) -> None:
    """Serve node groups over HTTPS until told to stop: the engine, and a REST API instead of the autoscaler's gRPC.

    A front, `cloudgraft serve` with a provider `{type: node-manager, address: …}`, stands between this and the
    autoscaler. Several fronts may share one manager.

    \b
    The smallest configuration, for a first try on one host:
      cluster: test
      nodeManager: {listen: "127.0.0.1:9009"}
      clouds: {sim: {driver: simulated}}
      nodeGroups:
        - {id: small, cloud: sim, maxSize: 5, machine: {shape: small}}

    \b
    Examples:
      cloudgraft node-manager --config manager.yaml
      cloudgraft node-manager --config manager.yaml --check

    SIGTERM and SIGINT let requests in flight end. SIGHUP, and a change of the file, bring new clouds, groups, guards,
    limits and clients into effect.
    """
    overrides = {"nodeManager.listen": listen, "log.level": verbosity, "log.format": log_format}

    def read() -> Config:
        config = load(path, overrides=overrides, find=_check)
        _section(config)
        return config

    if not check:
        forbid_memory_dumps()
    file = WatchedFile(path, read)
    config = load(path, overrides=overrides, find=_check)
    metrics = ServiceMetrics()
    problems = Problems()
    with problems.collecting():
        _check_kind(config)
    with problems.collecting():
        assembly = assemble(config, metrics)
    problems.raise_any()
    server = NodeManagerServer(config, assembly, metrics)
    if check:
        click.echo(f"{path}: good ({len(config.groups())} groups, {len(_section(config).clients)} clients)")
        return
    logs.configure(config.log.level, config.log.format)
    signal.signal(signal.SIGHUP, lambda *_: None)  # ignored until the watch handles it
    link, dock, engine = assembly.link, assembly.dock, server.engine
    if dock is not None:
        dock.register(metrics.registry)
    assert link is not None  # noqa: S101 - an engine always has one
    make_reloader = partial(Reloader, file, config, engine, link, dock=dock, then=server.replace)
    beside = Sidecars(engine, link, config, metrics, make_reloader, dock=dock)

    @asynccontextmanager
    async def parts() -> AsyncIterator[None]:
        async with server.running(), beside.running():
            settle()
            yield

    asyncio.run(run_until_signal(parts()))


class NodeManagerServer:
    """A node manager of a configuration."""

    def __init__(self, config: Config, assembly: Assembly, metrics: ServiceMetrics) -> None:
        """Opens nothing yet; raises an error that names what cannot be used."""
        section = _section(config)
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
        self.listener = WebListener(
            app,
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
        self.gatekeeper.replace(_rules(_section(config)))


def _check(config: Config) -> None:
    """Raises ConfigError with the problems that all parts find in a file that has others too."""
    problems = Problems()
    with problems.collecting():
        _check_kind(config)
    with problems.collecting():
        check_parts(config)
    problems.raise_any()


def _check_kind(config: Config) -> None:
    """Raises ConfigError for a file that is not one for a node manager."""
    document = config.where().document
    problems = Problems()
    if config.node_manager is None and document.find(("nodeManager",)) is None:
        with problems.collecting():
            _section(config)
    if config.providers or not (config.clouds or config.node_groups):
        hint = "write clouds and nodeGroups, and no providers: those belong into the file of a front"
        problems.add(document.problem((), "is not one for a node manager", hint))
    problems.raise_any()


def _section(config: Config) -> NodeManager:
    if config.node_manager is None:
        raise config.where().error("has no section nodeManager", "write one: it says where to listen, and who may call")
    return config.node_manager


def _rules(section: NodeManager) -> list[ClientRule]:
    return [convert(client, ClientRule, certificate=client.certificate or "") for client in section.clients]
