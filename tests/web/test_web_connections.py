"""Connections that say nothing do not keep others from an HTTPS server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cloudgraft.certs.authority import Bundle, create_bundle
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.web import listener as listener_module
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, ClientRule, Gatekeeper
from cloudgraft.web.client import ClientTls, WebClient
from cloudgraft.web.listener import WebListener, WebTls
from tests.conditions import until

LIMIT = 10


class Place:
    """A server for ten connections, and its metrics."""

    def __init__(self, directory: Path) -> None:
        self.certs: Bundle = create_bundle(directory / "certs", hosts=["127.0.0.1"], client_name="boss")
        self.registry = CollectorRegistry()

        async def ready() -> str:
            return ""

        app = make_app(
            title="things",
            version="1",
            routers=[],
            gatekeeper=Gatekeeper([ClientRule(name="boss", role="operator", certificate="boss")], secure=True),
            audit=AuditLog(directory / "audit.log"),
            ready=ready,
            metrics=self.registry,
        )
        tls = WebTls(cert=self.certs.server_cert, key=self.certs.server_key, client_ca=self.certs.ca_cert)
        self.listener = WebListener(
            app, listen="127.0.0.1:0", tls=tls, connections=LIMIT, metrics=ListenerMetrics(self.registry)
        )

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listener.address.rpartition(":")
        return host, int(port)

    def client(self, *, is_known: bool = True) -> WebClient:
        certs = self.certs
        files = (
            ClientTls(ca=certs.ca_cert, cert=certs.client_cert, key=certs.client_key)
            if is_known
            else ClientTls(ca=certs.ca_cert)
        )
        return WebClient(self.listener.url, tls=files, timeout=30)

    def refused(self, reason: str) -> float:
        labels = {"listener": "web", "reason": reason}
        return self.registry.get_sample_value("cloudgraft_refused_clients_total", labels) or 0.0


@asynccontextmanager
async def placed(directory: Path) -> AsyncIterator[Place]:
    place = Place(directory)
    await place.listener.open()
    try:
        yield place
    finally:
        await place.listener.close(1)


async def test_idle_connections_are_closed_before_those_of_known_clients(tmp_path: Path) -> None:
    async with placed(tmp_path) as place, place.client() as known:
        await known.request("GET", "/metrics")
        with ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(place.address, timeout=10))
            await until(lambda: place.refused("too_many") >= 40 + 1 - LIMIT, what="the oldest idle ones are closed")
            await known.request("GET", "/metrics")
            async with place.client() as other:
                await other.request("GET", "/metrics")
        assert place.registry.get_sample_value("cloudgraft_connections_limit", {"listener": "web"}) == LIMIT


async def test_a_handshake_that_never_comes_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "_HANDSHAKE", 0.1)
    async with placed(tmp_path) as place:
        with socket.create_connection(place.address, timeout=20) as silent:
            assert await asyncio.to_thread(silent.recv, 1) == b""
        assert place.refused("too_slow") == 1


async def test_an_unknown_client_is_counted(tmp_path: Path) -> None:
    async with placed(tmp_path) as place:
        reader, writer = await asyncio.open_connection(*place.address, ssl=_no_certificate(place))
        writer.write(b"POST /things HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")  # and no body
        assert (await reader.readline()).split()[1] == b"401"
        writer.transport.abort()
        assert place.refused("unknown") == 1


def _no_certificate(place: Place) -> object:
    import ssl

    return ssl.create_default_context(cafile=str(place.certs.ca_cert))
