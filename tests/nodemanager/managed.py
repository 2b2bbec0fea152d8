"""A node manager on a real port with real TLS, over an engine whose clock only moves when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.certs.defaults import DEFAULT_CLIENT
from cloudgraft.nodemanager.api.app import manager_app
from cloudgraft.nodemanager.front.provider import FrontSettings, ManagerLink, NodeManagerProvider
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.client import ClientTls, WebClient
from cloudgraft.web.listener import WebListener, WebTls
from tests.engine.engine_rig import Rig, running

PATIENCE = 60.0  # seconds for what a machine that is busy with other things may take long for
TOKENS = {
    "front": "front-token-0123456789",
    "operator": "operator-token-0123456789",
    "read-only": "reader-token-012345",
}


def patient(**changes: float) -> FrontSettings:
    """A front that reads often, and is never late: what it shows after a Refresh does not depend on speed."""
    given = {"refresh_every": 0.05, "refresh_limit": PATIENCE, "own_read_limit": PATIENCE, **changes}
    return FrontSettings(**given)


@dataclass
class Managed:
    """A manager that listens."""

    rig: Rig
    manager: Manager
    listener: WebListener
    bundle: Bundle
    directory: Path

    @property
    def url(self) -> str:
        return self.listener.url

    def client(self, role: str = "operator", *, url: str = "", timeout: float = PATIENCE) -> WebClient:
        """Whoever has the token of that role."""
        tls = ClientTls(ca=self.bundle.ca_cert)
        return WebClient(url or self.url, tls=tls, token_file=self.directory / f"{role}.token", timeout=timeout)

    def front(
        self, *, url: str = "", settings: FrontSettings | None = None, timeout: float = PATIENCE
    ) -> NodeManagerProvider:
        """A front that shows a certificate."""
        tls = ClientTls(ca=self.bundle.ca_cert, cert=self.bundle.client_cert, key=self.bundle.client_key)
        link = ManagerLink(WebClient(url or self.url, tls=tls, timeout=timeout), timeout=timeout)
        return NodeManagerProvider(link, settings=settings or patient())

    @asynccontextmanager
    async def fronted(
        self, *, url: str = "", settings: FrontSettings | None = None
    ) -> AsyncIterator[NodeManagerProvider]:
        """A front that runs."""
        front = self.front(url=url, settings=settings)
        await front.start()
        try:
            yield front
        finally:
            await front.close()


def rules(directory: Path) -> list[ClientRule]:
    """A client for each role, by token; and a front by its certificate."""
    found = [ClientRule(name="ca", role="front", certificate=DEFAULT_CLIENT)]
    for role, token in TOKENS.items():
        path = directory / f"{role}.token"
        path.write_text(token + "\n")
        path.chmod(0o600)
        found.append(ClientRule(name=f"the {role}", role=role, token_file=path))
    return found


@asynccontextmanager
async def managed(rig: Rig, directory: Path, *, metrics: bool = False) -> AsyncIterator[Managed]:
    """Runs it for as long as the block lasts."""
    bundle = create_bundle(directory / "certs", hosts=["127.0.0.1", "localhost"])
    async with running(rig):
        manager = Manager(rig.engine, rig.provider)
        gatekeeper = Gatekeeper(rules(directory), secure=True)
        registry = CollectorRegistry() if metrics else None
        app = manager_app(manager, gatekeeper=gatekeeper, audit=AuditLog(directory / "audit.log"), metrics=registry)
        tls = WebTls(cert=bundle.server_cert, key=bundle.server_key, client_ca=bundle.ca_cert)
        listener = WebListener(app, listen="127.0.0.1:0", tls=tls)
        await listener.open()
        try:
            yield Managed(rig, manager, listener, bundle, directory)
        finally:
            manager.feed.close()
            await listener.close(1.0)
