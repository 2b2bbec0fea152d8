"""The thread in which a database is used: in order, with time limits, and never stuck for good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from cloudgraft.store.databases.database import DatabaseThread
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import JournalUnavailableError
from tests.conditions import until


class _Hanging(SqliteDatabase):
    """A database in which calls hang until they are cut."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.entered = threading.Event()
        self.was_cut = threading.Event()

    def hang(self) -> str:
        self.entered.set()
        return "cut" if self.was_cut.wait(20) else "never cut"

    def cut(self) -> None:
        self.was_cut.set()


@pytest.fixture
def database(tmp_path: Path) -> _Hanging:
    return _Hanging(tmp_path / "journal.db")


@pytest.fixture
async def thread(database: _Hanging) -> AsyncIterator[DatabaseThread]:
    thread = DatabaseThread(database)
    yield thread
    await thread.close(seconds=5.0)


async def test_a_call_that_hangs_is_cut_and_the_next_one_works(
    thread: DatabaseThread, database: _Hanging, passes: Callable[[float], None]
) -> None:
    calling = asyncio.ensure_future(thread.run(database.hang, seconds=300, is_write=True))
    await until(database.entered.is_set)
    assert not database.was_cut.is_set()
    passes(300)
    with pytest.raises(JournalUnavailableError, match="did not answer within 300 s") as caught:
        await calling
    assert caught.value.is_ambiguous
    assert await thread.run(lambda: "answer", seconds=300) == "answer"


async def test_a_call_that_hangs_is_cut_also_when_nobody_waits_for_it_any_more(
    thread: DatabaseThread, database: _Hanging, passes: Callable[[float], None]
) -> None:
    calling = asyncio.ensure_future(thread.run(database.hang, seconds=300))
    await until(database.entered.is_set)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert not database.was_cut.is_set()
    passes(300)
    assert await thread.run(lambda: "answer", seconds=300) == "answer"
    assert database.was_cut.is_set()


async def test_a_call_that_has_ended_is_not_cut_later(
    thread: DatabaseThread, database: _Hanging, passes: Callable[[float], None]
) -> None:
    """The next call would suffer for it."""
    assert await thread.run(lambda: 1, seconds=300) == 1
    calling = asyncio.ensure_future(thread.run(database.hang, seconds=900))
    await until(database.entered.is_set)
    passes(300)  # as much as the first call had
    await asyncio.sleep(0.001)  # whatever is due comes before it
    assert not database.was_cut.is_set()
    database.cut()
    assert await calling == "cut"


async def test_a_call_that_waits_behind_another_has_not_begun(
    thread: DatabaseThread, database: _Hanging, passes: Callable[[float], None]
) -> None:
    first = asyncio.ensure_future(thread.run(database.hang, seconds=900))
    await until(database.entered.is_set)
    second = asyncio.ensure_future(thread.run(lambda: "never", seconds=300, is_write=True))
    await asyncio.sleep(0)  # it begins to wait
    passes(300)
    with pytest.raises(JournalUnavailableError) as caught:
        await second
    assert not caught.value.is_ambiguous
    assert not database.was_cut.is_set()  # the first one has time left
    database.cut()
    assert await first == "cut"


async def test_what_a_call_raises_comes_out_as_it_is(thread: DatabaseThread) -> None:
    def fail() -> None:
        raise TimeoutError("the disk's own")

    with pytest.raises(TimeoutError, match="the disk's own"):
        await thread.run(fail, seconds=20)


async def test_after_the_end_calls_are_refused(database: _Hanging) -> None:
    thread = DatabaseThread(database)
    await thread.close(seconds=5.0)
    with pytest.raises(JournalUnavailableError, match="is busy or closed"):
        await thread.run(lambda: None, seconds=1)


async def test_closing_does_not_wait_for_ever(database: _Hanging) -> None:
    thread = DatabaseThread(database)
    hanging = asyncio.ensure_future(thread.run(database.hang, seconds=20))
    await until(database.entered.is_set)
    await thread.close(seconds=0.05)
    assert await hanging == "cut"
