"""A discovery server with real TLS, a real SQLite file, and a client for every role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cloudgraft.discovery.service import Discovery
from cloudgraft.discovery.store.vault import Vault, new_key
from tests.discovery.web.discovery_server import ServedDiscovery, certificates
from tests.kube_api import KubeApi


@pytest.fixture(scope="session")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server, and a client certificate for each role."""
    return certificates(tmp_path_factory.mktemp("certs") / "certs")


@pytest.fixture
async def town(certs: Path, tmp_path: Path) -> AsyncIterator[ServedDiscovery]:
    """A server that is running, and whoever may ask it."""
    made = ServedDiscovery(certs, tmp_path)
    async with made.running():
        yield made


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Discovery]:
    """The core alone, without HTTP."""
    vault = Vault.parse(new_key(), where="the test")
    opened = Discovery(Discovery.sqlite(tmp_path / "core.db"), vault=vault, gather=0.0)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def api() -> Iterator[KubeApi]:
    """The API server of a remote cluster, or of the one where Secrets are."""
    server = KubeApi()
    server.start()
    yield server
    server.stop()
