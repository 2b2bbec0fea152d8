"""A journal that fails in a row, and callers that leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.errors import DeadlineError
from cloudgraft.service.cloud_provider import Call, CloudProviderService
from cloudgraft.store.journal import JournalUnavailableError
from cloudgraft.store.records import Change, Contents
from cloudgraft.store.sql import SqlJournal
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conditions import until
from tests.engine.scripted_cloud import Cloud, desired_state, group, live


class Failing(SqlJournal):
    """Takes nothing any more, and leaves it open whether it did, once told so."""

    is_full = False
    tries = 0
    reads = 0

    async def load(self) -> Contents:
        self.reads += 1
        return await super().load()

    async def write(self, change: Change) -> None:
        if self.is_full:
            self.tries += 1
            raise JournalUnavailableError("the disk is full", is_ambiguous=True)
        await super().write(change)


async def test_a_journal_that_fails_again_and_again_makes_no_storm_of_reads_and_lists(tmp_path: Path) -> None:
    cloud = Cloud()
    journal = Failing.sqlite(tmp_path / "journal.db")
    assert isinstance(journal, Failing)
    engine = Engine(desired_state({"a": cloud}, group()), journal)
    await engine.start()
    await engine.refresh()
    await EngineProvider(engine).increase_size("g", 2)
    journal.is_full = True
    reads, lists = journal.reads, cloud.lists
    await until(lambda: journal.tries >= 3, seconds=20)
    assert journal.reads - reads <= journal.tries + 1
    assert cloud.lists - lists <= journal.tries + 1
    journal.is_full = False
    await until(lambda: bool(cloud.machines) and not engine.trouble(), seconds=20)
    await engine.close()


async def test_a_change_whose_caller_left_before_its_turn_is_not_made(tmp_path: Path) -> None:
    """R45: the caller was told that it failed, and buys elsewhere."""
    async with live(tmp_path, desired_state({"a": Cloud()}, group())) as engine:
        service = CloudProviderService(EngineProvider(engine))
        await until(lambda: bool(engine.fleet.adopted_clouds), seconds=20)
        await service.handle("Refresh", pb.RefreshRequest(), Call())
        async with engine.writer._lock:  # somebody else's write, which hangs
            request = pb.NodeGroupIncreaseSizeRequest(id="g", delta=2)
            with pytest.raises(DeadlineError):
                await service.handle("NodeGroupIncreaseSize", request, Call(seconds_left=0.05))
        await service.close(20)
        assert engine.fleet.groups["g"].target == 0
        await service.handle("NodeGroupIncreaseSize", request, Call())
        assert engine.fleet.groups["g"].target == 2
