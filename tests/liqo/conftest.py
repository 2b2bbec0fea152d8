from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.liqo.liqo_world import World, world_of


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_of(tmp_path, "cluster-a", "cluster-b") as made:
        yield made
