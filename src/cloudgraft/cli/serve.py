"""``cloudgraft serve``: runs the server for the autoscaler."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import click

from cloudgraft.admin.methods import engine_methods
from cloudgraft.admin.server import AdminServer
from cloudgraft.app import logs
from cloudgraft.app.dock_wiring import DockLink, ListOnDriverEvent
from cloudgraft.app.joining_wiring import ClusterLink
from cloudgraft.app.memory_dumps import forbid_memory_dumps
from cloudgraft.app.reload import Reloader, WatchedFile
from cloudgraft.app.wiring import DockAlone, admin_place, assemble, check_parts, make_webhook, serve_options
from cloudgraft.cli.terminal import check_option, config_option, output_option
from cloudgraft.config import Config, load
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.reporting.metrics import EngineMetrics
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.server.serve import Running, serve_until_signal
from cloudgraft.service.metrics import ServiceMetrics


@click.command()
@config_option("The configuration file (docs/reference/configuration.md).")
@click.option("--listen", help="Address to listen on, instead of the file's server.listen.")
@click.option(
    "--insecure", is_flag=True, help="Serve other hosts without TLS. Everybody who can reach the port has full control."
)
@check_option
@click.option("--online", is_flag=True, help="With --check: also ask every cloud for a list and its machine types.")
@click.option(
    "--create-one",
    metavar="GROUP",
    help="With --online: create one machine of this group, measure when the list shows it, and delete it.",
)
@output_option
@logs.options
def command(
    path: Path,
    listen: str | None,
    verbosity: int | None,
    log_format: str | None,
    create_one: str | None,
    output: str,
    *,
    insecure: bool,
    check: bool,
    online: bool,
) -> None:
    """Serve the Cluster Autoscaler until told to stop.

    \b
    The smallest configuration, for a first try:
      cluster: test
      clouds: {sim: {driver: simulated}}
      nodeGroups:
        - {id: small, cloud: sim, maxSize: 5, machine: {shape: small}}

    \b
    Examples:
      cloudgraft serve --config cloudgraft.yaml
      cloudgraft serve --config cloudgraft.yaml --check
      cloudgraft serve --config cloudgraft.yaml --check --online
      cloudgraft serve --config cloudgraft.yaml -v5 --log-format json

    SIGTERM and SIGINT let calls in flight end; a second signal does not wait. SIGHUP, and a change of the file, bring
    new clouds, groups, guards and limits into effect at the autoscaler's next Refresh.
    """
    overrides = {
        "server.listen": listen,
        "server.insecure": insecure or None,
        "log.level": verbosity,
        "log.format": log_format,
    }
    if (online and not check) or (create_one is not None and not online) or (output == "json" and not check):
        raise click.UsageError("--online and -o json go with --check, and --create-one goes with --check --online")
    if check:
        from cloudgraft.cli import serve_check  # noqa: PLC0415 - a server does not need it

        serve_check.run(path, overrides, online=online, create_one=create_one, output=output)
        return
    forbid_memory_dumps()
    file = WatchedFile(path, lambda: load(path, overrides=overrides, find=check_parts))
    config = file.load()
    metrics = ServiceMetrics()
    assembly = assemble(config, metrics)
    logs.configure(config.log.level, config.log.format)
    # SIGHUP must not end the server where no watch handles it; child processes get the default.
    signal.signal(signal.SIGHUP, lambda *_: None)
    engine, link, dock = assembly.engine, assembly.link, assembly.dock
    beside: Callable[[Running], AbstractAsyncContextManager[None]] | None = None
    if dock is not None:
        dock.register(metrics.registry)
    if engine is not None and link is not None:
        make_reloader = partial(Reloader, file, config, engine, link, dock=dock)
        beside = Sidecars(engine, link, config, metrics, make_reloader, dock=dock)
    elif dock is not None:
        alone = DockAlone(file, config, dock)
        beside = lambda _: alone.running()  # noqa: E731 - as short as it is
    asyncio.run(
        serve_until_signal(
            assembly.provider,
            serve_options(config),
            metrics=metrics,
            trouble=assembly.trouble,
            gate=engine.check_open if engine else None,
            beside=beside,
        )
    )


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
        self._webhook = make_webhook(config)
        EngineMetrics(engine, metrics.registry, webhook=self._webhook)
        if self._webhook is not None:
            engine.writer.subscribe(self._webhook.tell)

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

    def _leads(self) -> bool:
        """Whether this process leads: drivers dial in only at the leader."""
        try:
            self._engine.check_leader()
        except CloudgraftError:
            return False
        return True
