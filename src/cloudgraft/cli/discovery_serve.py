"""`cloudgraft discovery serve` and `rotate-keys`: runs a discovery server, and re-encrypts its credentials."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import click
from prometheus_client import CollectorRegistry

from cloudgraft.app import logs
from cloudgraft.app.joining_wiring import connected
from cloudgraft.app.memory_dumps import forbid_memory_dumps
from cloudgraft.app.reload import WatchedFile
from cloudgraft.config.programs.discovery import DiscoveryConfig, load_discovery
from cloudgraft.config.section import changed_keys, convert
from cloudgraft.discovery.api.app import PeriodicWork, discovery_app
from cloudgraft.discovery.importer import Importer
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.server.signals import run_until_signal
from cloudgraft.store.databases.database import Database
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener, WebTls

_LOG = logging.getLogger("cloudgraft.discovery")
_REPLACED: Final = {"clients", "vault"}  # a change of these needs no restart
_RESTART_AFTER: Final = 5.0  # seconds
_config: Final = click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), required=True, help="The server's file, YAML."
)


@click.command("serve")
@_config
@click.option("--check", is_flag=True, help="Only check the file: exit code 0 when it is good.")
@click.option("--upgrade", is_flag=True, help="Bring a PostgreSQL of an older release up to date first.")
@logs.options
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
        async with server.running(upgrade=upgrade), file.following(server.replace, _LOG):
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
    core = _core(load_discovery(path))

    async def rotate() -> tuple[int, list[str]]:
        await core.open()
        try:
            done = await core.rotate()
        finally:
            await core.close()
        return done.rotated, list(done.unreadable)

    rotated, unreadable = asyncio.run(rotate())
    click.echo(f"{rotated} encrypted with the first key")
    for cluster in unreadable:
        click.echo(f"error: the credentials of {cluster} decrypt with none of the keys: hand them in again", err=True)
    if unreadable:
        raise SystemExit(1)


class DiscoveryServer:
    """A discovery server of a configuration."""

    def __init__(self, config: DiscoveryConfig) -> None:
        """Opens nothing yet; raises an error that names what cannot be used."""
        self._config = config
        self.core = _core(config)
        self.gatekeeper = Gatekeeper(_rules(config), secure=config.tls is not None)
        self.registry = CollectorRegistry()
        self.listener = WebListener(
            discovery_app(
                self.core,
                gatekeeper=self.gatekeeper,
                audit=AuditLog(config.audit_log),
                ready=self._ready,
                metrics=self.registry,
                legacy_list=config.legacy_list,
            ),
            listen=config.listen,
            tls=convert(config.tls, WebTls) if config.tls is not None else None,
            connections=config.limits.connections,
            metrics=ListenerMetrics(self.registry),
        )

    @asynccontextmanager
    async def running(self, *, upgrade: bool = False) -> AsyncIterator[None]:
        """Serves for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            await self.core.open(upgrade=upgrade)
            stack.push_async_callback(self.core.close)
            await stack.enter_async_context(_working(PeriodicWork(self.core, self.registry).run, "chores"))
            if self._config.import_secrets is not None:
                kube = connected(self._config.import_secrets)
                stack.push_async_callback(kube.close)
                importer = Importer(kube, self._config.import_secrets.namespace, self.core)
                await stack.enter_async_context(_working(importer.run, "importer"))
            await self.listener.open()
            stack.push_async_callback(self.listener.close, self._config.grace.total_seconds())
            _LOG.info("serving", extra={"address": self.listener.url, "database": self.core.label})
            yield

    def replace(self, config: DiscoveryConfig) -> None:
        """Applies the clients and keys of a changed file. Raises, and changes nothing, when they cannot be used."""
        vault = _vault(config)
        fixed = changed_keys(self._config, config, _REPLACED)
        if fixed:
            _LOG.warning("a change of these needs a restart: %s", ", ".join(fixed))
        self.gatekeeper.replace(_rules(config))
        if vault is not None:
            self.core.use_vault(vault)

    async def _ready(self) -> str:
        try:
            await self.core.check()
        except CloudgraftError as error:
            return error.message
        return ""


@asynccontextmanager
async def _working(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> AsyncIterator[None]:
    """Runs the work in the background while the block lasts."""
    task = asyncio.create_task(_restarted(work, name), name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _restarted(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Runs the work until cancelled. After a bug, logs it and restarts the work, so that it does not stop unnoticed."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - no error may end this loop or the server
            _LOG.exception("the %s failed because of a bug, restarting it", name)
        await asyncio.sleep(_RESTART_AFTER)


def _core(config: DiscoveryConfig) -> Discovery:
    return Discovery(_database(config), vault=_vault(config), stale_after=config.stale_after.total_seconds())


def _database(config: DiscoveryConfig) -> Database:
    postgresql = config.store.postgresql
    if postgresql is not None:
        return Discovery.postgresql(postgresql)
    if config.store.path is None:
        raise PreconditionError("the file does not say where the database is: set store.path")
    return Discovery.sqlite(config.store.path)


def _vault(config: DiscoveryConfig) -> Vault | None:
    vault = config.vault
    if vault is None:
        return None
    return (
        Vault.from_file(vault.key_file) if vault.key_file is not None else Vault.from_environment(vault.key_env or "")
    )


def _rules(config: DiscoveryConfig) -> list[ClientRule]:
    return [
        convert(client, ClientRule, certificate=client.certificate or "", scope=client.cluster or "")
        for client in config.clients
    ]
