"""An engine whose SQLite journal another process has opened stops acting, and says who has it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cloudgraft.engine.engine import Engine
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.store.journal import FencedError
from cloudgraft.store.sql import SqlJournal
from cloudgraft.store.statements import take_fence
from tests.conditions import until
from tests.engine.scripted_cloud import Cloud, desired_state, group


async def test_an_engine_that_is_fenced_creates_nothing_and_stays_fenced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = Cloud()
    journal = SqlJournal.sqlite(tmp_path / "journal.db")
    engine = Engine(desired_state({"a": cloud}, group()), journal)
    await engine.start()
    await engine.refresh()
    with journal._database.transaction() as connection:  # as a second process does that no lock kept out
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        holder = take_fence(connection).holder
    caplog.set_level(logging.INFO, "cloudgraft.engine")
    with pytest.raises(FencedError, match="writes nothing more"):
        await EngineProvider(engine).increase_size("g", 2)
    await until(lambda: holder in engine.trouble(), seconds=20)
    with pytest.raises(UnavailableError):
        engine.check_leader()
    lists = cloud.lists
    await until(lambda: any("leads" in record.getMessage() for record in caplog.records), seconds=20)
    assert (cloud.lists, cloud.machines) == (lists, {})
    assert not [record for record in caplog.records if "elected leader" in record.getMessage()]
    await engine.close()
