"""A second process does not get onto a live SQLite journal; one that does ends the first one's writes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgraft.store.databases.filelock import InodeLock
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import FencedError, JournalLockedError
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.sql import SqlJournal
from tests.store.places import SqlitePlace, change, machine

_HOLDER = Path(__file__).with_name("holder.py")
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A journal that another process has open."""
    path = tmp_path / "journal.db"
    child = subprocess.Popen(
        [sys.executable, str(_HOLDER), "hold", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield path
        child.kill()


async def test_the_lock_holds_without_its_file_and_under_every_name(held: Path, tmp_path: Path) -> None:
    held.with_name("journal.db.lock").unlink()
    os.link(held, tmp_path / "hard.db")
    (tmp_path / "soft.db").symlink_to(held)
    for name in ("journal.db", "hard.db", "soft.db"):
        with pytest.raises(JournalLockedError, match="is in use by"):
            await SqlJournal.sqlite(tmp_path / name).open()
    looking = SqliteDatabase(held)
    assert check_journal(looking).machines["running"] == 1  # who only looks is not kept out
    looking.close()


async def test_one_process_does_not_open_it_twice_without_the_lock_file(sqlite_place: SqlitePlace) -> None:
    """To open and close the file would also take SQLite's own locks away."""
    journal = await sqlite_place.opened()
    sqlite_place.path.with_name("journal.db.lock").unlink()
    with pytest.raises(JournalLockedError):
        await sqlite_place.journal().open()
    alone = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode=DELETE')"
    stranger = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", alone, str(sqlite_place.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "database is locked" in stranger.stderr  # it would need the file for itself
    await journal.write(change(machine("m-1")))


async def test_the_lock_goes_with_the_journal(sqlite_place: SqlitePlace, tmp_path: Path) -> None:
    for _ in range(2):
        await (await sqlite_place.opened()).close()
    sqlite_place.path.rename(tmp_path / "moved.db")
    other = SqlJournal.sqlite(tmp_path / "moved.db")
    await other.open()
    await sqlite_place.opened()  # a new file of the old name
    await other.close()


def test_where_both_kinds_of_locks_are_one_the_file_is_left_to_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: SQLite would wait for our own lock."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    lock = InodeLock(tmp_path / "journal.db", lambda: "")
    lock.acquire()
    handle = os.open(tmp_path / "journal.db", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    lock.release()


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system whose locks keep nobody out."""
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    monkeypatch.setattr(InodeLock, "_ours", frozenset[tuple[int, int]]())
    monkeypatch.setattr(InodeLock, "acquire", lambda self: self._path.touch(0o600))


@pytest.mark.usefixtures("no_locks")
async def test_whoever_opens_it_last_writes_and_the_one_before_is_fenced(sqlite_place: SqlitePlace) -> None:
    first = await sqlite_place.opened()
    await first.write(change(machine("m-1")))
    second = await sqlite_place.opened()
    with pytest.raises(FencedError, match=rf"opened by process {os.getpid()} on .*writes nothing more"):
        await first.write(change(machine("m-2")))
    assert first.fenced_by.startswith(f"process {os.getpid()} on ")
    with pytest.raises(FencedError):
        await first.purge(gone_before=0.0, events_before=0.0)
    with pytest.raises(FencedError):
        await first.load()
    await second.write(change(machine("m-2")))
    assert [found.name for found in (await second.load()).machines] == ["m-1", "m-2"]
    await first.close()
    await first.open()  # opened anew it is the newest
    await first.write(change(machine("m-3")))
    with pytest.raises(FencedError):
        await second.write(change(machine("m-4")))


async def test_a_full_disk_at_the_start_delays_only_the_epoch(
    sqlite_place: SqlitePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await sqlite_place.opened()).close()
    stranger = sqlite3.connect(sqlite_place.path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("cloudgraft.store.databases.sqlite._BUSY_MS", 50)
    journal = await sqlite_place.opened()  # reading needs no lock
    stranger.execute("ROLLBACK")
    stranger.close()
    await journal.write(change(machine("m-1")))
    with journal._database.transaction() as connection:
        assert connection.exec_driver_sql("SELECT epoch FROM fence").scalar() == 2
