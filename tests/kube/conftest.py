from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cloudgraft.kube.client import KubeClient
from cloudgraft.kube.connect import connect
from tests.kube_api import KubeApi


@pytest.fixture
def api() -> Iterator[KubeApi]:
    server = KubeApi()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def client(api: KubeApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    connected = connect(api.kubeconfig(tmp_path))
    yield connected
    await connected.close()
