"""``cloudgraft serve``: runs the server for the autoscaler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgraft.cli.terminal import check_option, config_option, log_options, output_option

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from cloudgraft.server.serve import Running


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
@log_options
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
        from cloudgraft.cli import serve_check

        serve_check.run(path, overrides, online=online, create_one=create_one, output=output)
        return
    import asyncio
    import signal
    from functools import partial

    from cloudgraft.app import logs
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.app.reload import Reloader, WatchedFile
    from cloudgraft.app.sidecars import Sidecars
    from cloudgraft.app.wiring import DockAlone, assemble, check_parts, serve_options
    from cloudgraft.config import load
    from cloudgraft.server.serve import serve_until_signal
    from cloudgraft.service.gate import Gate
    from cloudgraft.service.metrics import ServiceMetrics

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
    serving = serve_until_signal(
        assembly.provider,
        serve_options(config),
        metrics=metrics,
        trouble=assembly.trouble,
        gate=Gate(engine.check_open, wait=engine.wait_to_lead) if engine else None,
        beside=beside,
        tracer=assembly.traces.tracer,
    )
    with assembly.traces.running():
        asyncio.run(serving)
