"""A fake project for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgraft.drivers.hetzner.driver import HetznerDriver
from clouds.servers.hetzner_fake import FakeHetzner
from tests.drivers.hetzner.hetzner_stage import hetzner_driver


@pytest.fixture
def fake() -> Iterator[FakeHetzner]:
    with FakeHetzner() as running:
        yield running


@pytest.fixture
def driver(fake: FakeHetzner, tmp_path: Path) -> Iterator[HetznerDriver]:
    made = hetzner_driver(fake, tmp_path)
    yield made
    made.close()
