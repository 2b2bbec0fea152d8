from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.liqo.sweep.liqo_kill_world import KillWorld


class Worlds:
    """One world for many tests: to set one up takes longer than a kill. After a failure there is a new one."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._world: KillWorld | None = None

    def get(self) -> KillWorld:
        if self._world is None:
            self._world = KillWorld(Path(self._factory.mktemp("sweep")))
        return self._world

    def discard(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            world.close()


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    made = Worlds(tmp_path_factory)
    yield made
    made.discard()


@pytest.fixture
def world(worlds: Worlds) -> Iterator[KillWorld]:
    found = worlds.get()
    found.is_good = False  # until the test says so at its end
    yield found
    if not found.is_good:
        worlds.discard()
