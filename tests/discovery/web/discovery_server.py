"""A discovery server as its file says, for tests: clients by certificate and by token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cloudgraft.app.discovery_server import DiscoveryServer
from cloudgraft.certs.authority import create_bundle, issue_client
from cloudgraft.config.programs.discovery import load_discovery
from cloudgraft.discovery.client import DiscoveryClient
from cloudgraft.discovery.store.vault import new_key
from cloudgraft.web.client import ClientTls, WebClient

ROLES: Final = {  # by certificate
    "manager": "node-manager",
    "rival": "node-manager",
    "boss": "operator",
    "viewer": "read-only",
}
AGENTS: Final = ("turin", "milan")  # by token, each for the cluster of its name
PATIENCE: Final = 60.0  # seconds: the machine may be busy
STRANGER: Final = "stranger"  # has a certificate of the same authority, and is nobody's client


def certificates(directory: Path) -> Path:
    create_bundle(directory, hosts=["127.0.0.1", "localhost"], client_name="manager")
    for name in ("rival", "boss", "viewer", STRANGER):
        issue_client(directory, name)
    return directory


def token(name: str) -> str:
    return f"{name}-token-0123456789abcdef"


class ServedDiscovery:
    """One server, its file, and clients of it."""

    def __init__(self, certs: Path, directory: Path, *, more: str = "legacyList: true\n") -> None:
        self.certs = certs
        self.directory = directory
        self.path = directory / "discovery.yaml"
        self.audit = directory / "audit.log"
        self._more = more
        (directory / "vault.keys").write_text(new_key())
        for name in AGENTS:
            (directory / f"{name}.token").write_text(token(name))
        self.write()
        self.server = DiscoveryServer(load_discovery(self.path))

    def write(self, *, without: str = "") -> None:
        """The file, perhaps with one client less."""
        people = [f"{{name: {name}, role: {role}, certificate: {name}}}" for name, role in ROLES.items()]
        people += [f"{{name: {name}, role: agent, cluster: {name}, tokenFile: {name}.token}}" for name in AGENTS]
        clients = "".join(f"  - {one}\n" for one in people if not one.startswith(f"{{name: {without},"))
        self.path.write_text(
            "listen: 127.0.0.1:0\n"
            f"tls: {{cert: {self.certs}/server.crt, key: {self.certs}/server.key, clientCA: {self.certs}/ca.crt}}\n"
            f"clients:\n{clients}"
            "store: {path: discovery.db}\nvault: {keyFile: vault.keys}\nauditLog: audit.log\n" + self._more
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.server.running():
            yield

    @property
    def url(self) -> str:
        return self.server.listener.url

    def tls(self, name: str = "") -> ClientTls:
        """With a certificate of that name, or with none."""
        ca = self.certs / "ca.crt"
        if not name:
            return ClientTls(ca=ca)
        stem = "client" if name == "manager" else name
        return ClientTls(ca=ca, cert=self.certs / f"{stem}.crt", key=self.certs / f"{stem}.key")

    def as_(self, name: str) -> DiscoveryClient:
        """A client: an agent by its token, anybody else by certificate."""
        if name in AGENTS:
            token_file = self.directory / f"{name}.token"
            return DiscoveryClient(self.url, tls=self.tls(), token_file=token_file, timeout=PATIENCE)
        return DiscoveryClient(self.url, tls=self.tls(name), timeout=PATIENCE)

    def web(self, name: str = "") -> WebClient:
        """Bare requests, also of nobody."""
        if name in AGENTS:
            token_file = self.directory / f"{name}.token"
            return WebClient(self.url, tls=self.tls(), token_file=token_file, timeout=PATIENCE)
        return WebClient(self.url, tls=self.tls(name), timeout=PATIENCE)
