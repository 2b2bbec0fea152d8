"""The front before the judge of every server: the contract, over gRPC, over a manager behind real TLS."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance import KitConfig, Status, run
from cloudgraft.engine.engine import Engine
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.sql import SqlJournal
from cloudgraft.testing import serving
from tests.conformance.test_kit_cloudgraft import told
from tests.engine.engine_rig import Rig, group
from tests.nodemanager.managed import managed, patient


class LiveRig(Rig):
    """An engine that works by itself, on the real clock."""

    def make(self) -> Engine:
        return Engine(self.desired_state(), SqlJournal.sqlite(self.directory / "journal.db"))


@pytest.mark.thorough
async def test_a_front_passes_as_the_engine_itself_does(tmp_path: Path) -> None:
    options = SimulatedOptions(boot_time=timedelta(milliseconds=50), delete_time=timedelta(milliseconds=50))
    rig = LiveRig(tmp_path, groups=(group("small"), group("floor", min_size=2, max_size=4)), options=options)
    rig.cloud = rig.cloud.__class__(options)  # on the real clock too
    settings = patient(refresh_every=0.2)
    async with asyncio.timeout(300), managed(rig, tmp_path) as there, serving(there.front(settings=settings)) as served:
        report = await run(KitConfig(address=served.address, group="small"), release="1.37")
    assert report.is_passed, told(report)
    assert report.count(Status.BLOCKED) == 0
