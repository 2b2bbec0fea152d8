"""Builds a discovery server of a configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry

from cloudgraft.app.joining_wiring import connected
from cloudgraft.config.programs.discovery import DiscoveryConfig
from cloudgraft.config.section import changed_keys, convert
from cloudgraft.discovery.api.app import PeriodicWork, discovery_app
from cloudgraft.discovery.importer import Importer
from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.sdk.errors import CloudgraftError, PreconditionError
from cloudgraft.store.databases.database import Database
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.listener import WebListener, WebTls

LOG: Final = logging.getLogger("cloudgraft.discovery")
_REPLACED: Final = {"clients", "vault"}  # a change of these needs no restart
_RESTART_AFTER: Final = 5.0  # seconds


class DiscoveryServer:
    """A discovery server of a configuration."""

    def __init__(self, config: DiscoveryConfig) -> None:
        """Opens nothing yet; raises an error that names what cannot be used."""
        self._config = config
        self.core = core_of(config)
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
            LOG.info("serving", extra={"address": self.listener.url, "database": self.core.label})
            yield

    def replace(self, config: DiscoveryConfig) -> None:
        """Applies the clients and keys of a changed file. Raises, and changes nothing, when they cannot be used."""
        vault = _vault(config)
        fixed = changed_keys(self._config, config, _REPLACED)
        if fixed:
            LOG.warning("a change of these needs a restart: %s", ", ".join(fixed))
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
        except Exception:
            LOG.exception("the %s failed because of a bug, restarting it", name)
        await asyncio.sleep(_RESTART_AFTER)


def core_of(config: DiscoveryConfig) -> Discovery:
    """The register of a configuration, not opened yet."""
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
