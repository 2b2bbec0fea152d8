"""``cloudgraft node-manager``: serves the engine over HTTPS, for fronts and for operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgraft.cli.terminal import check_option, config_option, log_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cloudgraft.config import Config


@click.command("node-manager")
@config_option("The configuration file, with a section `nodeManager` (docs/reference/configuration.md).")
@click.option("--listen", help="Address to listen on, instead of the file's nodeManager.listen.")
@check_option
@log_options
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
    import asyncio
    import signal
    from contextlib import asynccontextmanager
    from functools import partial

    from cloudgraft.app import logs
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.app.reload import Reloader, WatchedFile
    from cloudgraft.app.sidecars import Sidecars
    from cloudgraft.app.wiring import assemble
    from cloudgraft.config import Problems, load
    from cloudgraft.sdk.common.extras import needing
    from cloudgraft.server.serve import settle
    from cloudgraft.server.signals import run_until_signal
    from cloudgraft.service.metrics import ServiceMetrics

    with needing("a node manager", "web"):
        from cloudgraft.app.node_manager import NodeManagerServer, check_kind, check_manager, section_of

    overrides = {"nodeManager.listen": listen, "log.level": verbosity, "log.format": log_format}

    def read() -> Config:
        config = load(path, overrides=overrides, find=check_manager)
        section_of(config)
        return config

    if not check:
        forbid_memory_dumps()
    file = WatchedFile(path, read)
    config = load(path, overrides=overrides, find=check_manager)
    metrics = ServiceMetrics()
    problems = Problems()
    with problems.collecting():
        check_kind(config)
    with problems.collecting():
        assembly = assemble(config, metrics)
    problems.raise_any()
    server = NodeManagerServer(config, assembly, metrics)
    if check:
        click.echo(f"{path}: good ({len(config.groups())} groups, {len(section_of(config).clients)} clients)")
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

    with assembly.traces.running():
        asyncio.run(run_until_signal(parts()))
