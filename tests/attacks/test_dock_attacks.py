"""Callers whom a dock does not know, and who send no bodies: refused, counted, and cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cloudgraft.dock.access import CallerAccess, CallerRule
from cloudgraft.dock.hub.engine_service import EngineService
from cloudgraft.dock.hub.hub import Hub
from cloudgraft.dock.hub.listener import DockListener
from cloudgraft.dock.hub.settings import HubSettings
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.dock.protocol.v1 import SERVICE
from cloudgraft.net.connections import ListenerMetrics
from cloudgraft.wire.driver import SERVICE as DRIVER_SERVICE
from tests.attacks import frames
from tests.attacks.http2 import Http2, Target, Toll, flood
from tests.conditions import until
from tests.dock.hub.hub_rig import SomeClasses

KEY = Key(kind="Acme", api_version="v1")


class Place:
    """A dock that knows drivers by a token."""

    def __init__(self, directory: Path) -> None:
        token = directory / "token"
        token.write_text("t" * 40 + "\n")
        token.chmod(0o600)
        rule = CallerRule(name="acme", keys=frozenset({KEY}), token_file=token)
        self.access = CallerAccess([rule], secure=False)
        self.registry = CollectorRegistry()
        settings = HubSettings(heartbeat=30.0)
        classes = SomeClasses()
        self.hub = Hub(access=self.access, classes=classes, settings=settings)
        handlers = [*self.hub.handlers(), EngineService(self.hub, None, self.access).handler()]
        self.listener = DockListener(
            handlers,
            listen="127.0.0.1:0",
            tls=None,
            settings=settings,
            access=self.access,
            metrics=ListenerMetrics(self.registry),
        )
        self.access.watch = self.listener.watch

    def refused(self, reason: str) -> float:
        labels = {"listener": "dock", "reason": reason}
        return self.registry.get_sample_value("cloudgraft_refused_clients_total", labels) or 0.0


@asynccontextmanager
async def attacked(directory: Path) -> AsyncIterator[tuple[Place, Http2, Toll]]:
    place, toll = Place(directory), Toll()
    await place.listener.open()
    host, _, port = place.listener.address.rpartition(":")
    connection = Http2(Target(host=host, port=int(port)), toll)
    try:
        await connection.open()
        yield place, connection, toll
    finally:
        await connection.close()
        await place.hub.close(0)
        await place.listener.close(0)


@pytest.mark.parametrize("method", [f"/{SERVICE}/GetSecret", f"/{DRIVER_SERVICE}/List", "/no.such.Service/Method"])
async def test_an_unknown_caller_is_refused_at_the_headers(tmp_path: Path, method: str) -> None:
    async with attacked(tmp_path) as (place, connection, toll):
        block = frames.header_block(method)
        for _ in range(3):
            await connection.write(frames.headers(connection.next_stream(), block))  # and no body, ever
        await until(lambda: toll.answered == 3, what="all are answered")
        assert all(b"does not know this" in answer for answer in connection.headers_of.values())
        assert place.refused("unknown") == 3


async def test_an_unknown_caller_that_floods_is_cut_off(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (place, connection, _):
        block = frames.header_block(f"/{SERVICE}/GetSecret")
        await flood(connection, block)
        assert place.refused("flood") == 1
