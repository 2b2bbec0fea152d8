"""``cloudgraft serve``: the server that the autoscaler talks to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cloudgraft.cli import logs
from cloudgraft.cli.wiring import assemble, serve_options
from cloudgraft.config import load
from cloudgraft.server.serve import serve_until_told
from cloudgraft.service.metrics import ServiceMetrics


@click.command()
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="The configuration file (docs/reference/configuration.md).",
)
@click.option("--listen", help="Address to listen on, instead of the file's server.listen.")
@click.option(
    "--insecure", is_flag=True, help="Serve other hosts without TLS. Whoever reaches the port has full power."
)
@click.option("--check", is_flag=True, help="Only check the configuration: exit code 0 when it is good.")
@logs.options
def command(
    path: Path, listen: str | None, verbosity: int | None, log_format: str | None, *, insecure: bool, check: bool
) -> None:
    """Serve the Cluster Autoscaler until told to stop.

    \b
    The smallest configuration, for a first try:
      cluster: test
      providers:
        - type: memory
          options: {groups: [{id: small, maxSize: 5}]}

    \b
    Examples:
      cloudgraft serve --config cloudgraft.yaml
      cloudgraft serve --config cloudgraft.yaml --check
      cloudgraft serve --config cloudgraft.yaml -v5 --log-format json

    SIGTERM and SIGINT let calls in flight end; a second signal does not wait.
    """
    given = {
        "server.listen": listen,
        "server.insecure": insecure or None,
        "log.level": verbosity,
        "log.format": log_format,
    }
    config = load(path, overrides={key: value for key, value in given.items() if value is not None})
    metrics = ServiceMetrics()
    assembly = assemble(config, metrics)
    if check:
        click.echo(f"{path}: good ({len(config.providers)} provider{'s' if len(config.providers) > 1 else ''})")
        return
    logs.configure(config.log.level, config.log.format)
    asyncio.run(serve_until_told(assembly.provider, serve_options(config), metrics=metrics, trouble=assembly.trouble))
