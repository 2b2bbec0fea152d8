"""Fixtures for the client's tests: a server to count calls on, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from cloudgraft.client import CloudProvider, RemoteProvider
from tests.client.counting import CountingServer


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with CountingServer() as running:
        yield running


@pytest.fixture
async def provider(server: CountingServer) -> AsyncIterator[CloudProvider]:
    async with CloudProvider.connect(server.config) as connected:
        yield connected


@pytest.fixture
async def remote(server: CountingServer) -> AsyncIterator[RemoteProvider]:
    connected = RemoteProvider.connect(server.config)
    yield connected
    await connected.close()
