"""`cloudgraft discovery agent`: announces the cluster it runs in, or the cluster of a kubeconfig."""

from __future__ import annotations

from pathlib import Path

import click

from cloudgraft.cli.terminal import config_option, log_options


@click.command("agent")
@config_option("The agent's file, YAML.", default=Path("agent.yaml"))
@click.option("--check", is_flag=True, help="Only check the file: exit code 0 when it is good.")
@log_options
def agent(path: Path, verbosity: int | None, log_format: str | None, *, check: bool) -> None:
    """Measure what a cluster has to share, and announce it to a discovery server, until told to stop.

    It only calls out: to the cluster's own API, where it reads nodes and pods, and to the discovery server.

    \b
    The file:
      server: {address: https://discovery.example:9010, tls: {ca: ca.crt, cert: agent.crt, key: agent.key}}
      kubernetes: {inCluster: true}
      cluster: {labels: {country: italy}}          # the id comes from Liqo's ConfigMap
      share: {margin: {cpu: 10%, memory: 4Gi}}
      prices: {currency: EUR, unit: {cpu: "0.02", memory: "0.004"}}
      credentialsFile: peering-user.kubeconfig

    \b
    Examples:
      cloudgraft discovery agent --config agent.yaml
      cloudgraft discovery agent --config agent.yaml --check
    """
    import asyncio

    from cloudgraft.app import logs
    from cloudgraft.app.discovery_agent import run_agent
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.config.programs.discovery_agent import load_agent

    if not check:
        forbid_memory_dumps()
    config = load_agent(path, overrides={"log.level": verbosity, "log.format": log_format})
    if check:
        click.echo(f"{path}: good (announces to {config.server.address})")
        return
    logs.configure(config.log.level, config.log.format)
    asyncio.run(run_agent(config))
