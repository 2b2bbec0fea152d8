"""A cloud whose options changed gets a new driver, and no call waits for the old one to go (law 1)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.store.records import State
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.engine.engine_rig import group


class Lingering(SimulatedDriver):
    """A driver that goes when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_started = False
        self.is_closing = False
        self.may_go = asyncio.Event()

    async def start(self) -> None:
        self.is_started = True
        await super().start()

    async def close(self) -> None:
        self.is_closing = True
        await self.may_go.wait()
        await super().close()


async def test_a_refresh_does_not_wait_for_a_driver_that_hangs_when_it_is_closed(tmp_path: Path) -> None:
    old, new = Lingering(), Lingering()
    settings = CloudSettings(name="sim")
    cloud = CloudDeclaration(settings=settings, make=lambda: old, fingerprint="old")
    before = DesiredState(cluster="test", clouds={"sim": cloud}, groups=[group()])
    after = replace(before, clouds={"sim": replace(cloud, make=lambda: new, fingerprint="new")})
    engine = Engine(before, SqlJournal.sqlite(tmp_path / "journal.db"))
    provider = EngineProvider(engine)
    await provider.start()
    engine.reconfigure(after)
    await provider.refresh()
    await until(lambda: old.is_closing)
    assert not new.is_started  # two drivers would be in each other's way
    await provider.increase_size("g", 1)
    old.may_go.set()
    await until(lambda: new.is_started)
    await until(lambda: [r.state for r in engine.fleet.in_cloud("sim").values()] != [State.REQUESTED])
    new.may_go.set()
    await provider.close()
