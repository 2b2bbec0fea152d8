"""`cloudgraft discovery serve` and `rotate-keys`: runs a discovery server, and re-encrypts its credentials."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cloudgraft.cli.progress import working
from cloudgraft.cli.terminal import config_option, log_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_config: Final = config_option("The server's file, YAML.", default=Path("discovery.yaml"))


@click.command("serve")
@_config
@click.option("--check", is_flag=True, help="Only check the file: exit code 0 when it is good.")
@click.option("--upgrade", is_flag=True, help="Bring a PostgreSQL of an older release up to date first.")
@log_options
def serve(path: Path, verbosity: int | None, log_format: str | None, *, check: bool, upgrade: bool) -> None:
    """Serve discovery over HTTPS until told to stop: clusters, prices, offers and reservations.

    \b
    The smallest file, for a first try on one host:
      listen: 127.0.0.1:9010

    \b
    One for others to use:
      listen: 0.0.0.0:9010
      tls: {cert: certs/server.crt, key: certs/server.key, clientCA: certs/ca.crt}
      clients:
        - {name: manager, role: node-manager, certificate: node-manager}
        - {name: turin, role: agent, cluster: turin, tokenFile: turin.token}
      vault: {keyFile: vault.keys}

    \b
    Examples:
      cloudgraft discovery serve --config discovery.yaml
      cloudgraft discovery serve --config discovery.yaml --check

    SIGHUP, and a change of the file, bring other clients and other keys into effect.
    """
    import asyncio
    import signal
    from contextlib import asynccontextmanager

    from cloudgraft.app import logs
    from cloudgraft.app.discovery_server import LOG, DiscoveryServer
    from cloudgraft.app.memory_dumps import forbid_memory_dumps
    from cloudgraft.app.reload import WatchedFile
    from cloudgraft.config.programs.discovery import load_discovery
    from cloudgraft.server.signals import run_until_signal

    overrides = {"log.level": verbosity, "log.format": log_format}
    if not check:
        forbid_memory_dumps()
    file = WatchedFile(path, lambda: load_discovery(path, overrides=overrides))
    config = file.load()
    server = DiscoveryServer(config)
    if check:
        click.echo(f"{path}: good ({len(config.clients)} clients)")
        return
    logs.configure(config.log.level, config.log.format)
    signal.signal(signal.SIGHUP, lambda *_: None)  # ignored until the watch handles it

    @asynccontextmanager
    async def parts() -> AsyncIterator[None]:
        async with server.running(upgrade=upgrade), file.following(server.replace, LOG):
            yield

    asyncio.run(run_until_signal(parts()))


@click.command(
    "rotate-keys",
    epilog="\b\nExample:\n  cloudgraft discovery rotate-keys --config discovery.yaml\n\n"
    "Put the new key first in the file of keys, send SIGHUP to all servers, run this, then take the old key out.",
)
@_config
def rotate_keys(path: Path) -> None:
    """Encrypt all credentials with the first key of the vault. May be run while servers run, and more than once."""
    import asyncio

    from cloudgraft.app.discovery_server import core_of
    from cloudgraft.config.programs.discovery import load_discovery

    core = core_of(load_discovery(path))

    async def rotate() -> tuple[int, list[str]]:
        await core.open()
        try:
            done = await core.rotate()
        finally:
            await core.close()
        return done.rotated, list(done.unreadable)

    with working("encrypting"):
        rotated, unreadable = asyncio.run(rotate())
    click.echo(f"{rotated} encrypted with the first key")
    for cluster in unreadable:
        click.echo(f"error: the credentials of {cluster} decrypt with none of the keys: hand them in again", err=True)
    if unreadable:
        raise SystemExit(1)
