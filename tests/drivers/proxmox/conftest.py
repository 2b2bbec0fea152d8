"""A fake cluster for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from clouds.servers.proxmox_fake import FakeProxmox
from tests.drivers.proxmox.proxmox_stage import proxmox_driver


@pytest.fixture
def fake() -> Iterator[FakeProxmox]:
    with FakeProxmox() as running:
        yield running


@pytest.fixture
def driver(fake: FakeProxmox, tmp_path: Path) -> Iterator[ProxmoxDriver]:
    made = proxmox_driver(fake, tmp_path)
    yield made
    made.close()
