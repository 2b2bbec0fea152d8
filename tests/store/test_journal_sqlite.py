"""What is true of a journal in a file: durable, one process at a time, and clear about what is wrong with it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.store import schema
from cloudgraft.store.databases import sqlite
from cloudgraft.store.databases.database import Access, Mode
from cloudgraft.store.databases.filelock import FileLock
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.journal import (
    EventQuery,
    JournalBrokenError,
    JournalLockedError,
    JournalUnavailableError,
)
from cloudgraft.store.rows import seal_all
from cloudgraft.store.sql import SqlJournal
from tests.conditions import until
from tests.store.places import SqlitePlace, change, machine, machines, told_when_it_writes

_HOLDER = Path(__file__).with_name("holder.py")
_ROOT = Path(__file__).parents[2]


@pytest.fixture
async def journal(sqlite_place: SqlitePlace) -> SqlJournal:
    return await sqlite_place.opened()


def _child(verb: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(_HOLDER), verb, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


async def test_the_connection_that_writes_waits_for_the_disk_at_every_commit(journal: SqlJournal) -> None:
    """WAL with synchronous=FULL: SQLite's word that COMMIT returns after fsync. `trace_fsync.py` watches it do so."""
    with journal._database.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA fullfsync").scalar() == 1
    journal._database.engine.dispose()  # a connection that is made anew is no different
    await journal.write(change(machine("m-1")))
    with journal._database.transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


async def test_only_its_owner_can_read_the_journal(journal: SqlJournal, sqlite_place: SqlitePlace) -> None:
    await journal.write(change(machine("m-1")))
    files = {file.name: file.stat().st_mode & 0o777 for file in sqlite_place.path.parent.iterdir()}
    names = ["", "-wal", "-shm", ".lock", ".cluster-id"]
    assert files == {f"journal.db{ending}": 0o600 for ending in names}


async def test_a_second_process_is_told_who_has_the_journal_until_kill_9(sqlite_place: SqlitePlace) -> None:
    child = _child("hold", sqlite_place.path)
    with child:
        assert child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
        holder = f"process {child.pid} on {socket.gethostname()} since "
        with pytest.raises(JournalLockedError, match=f"in use by {holder}.*stop that one first"):
            await sqlite_place.journal().open()
        child.send_signal(signal.SIGKILL)
    journal = await sqlite_place.opened()
    assert [found.name for found in (await journal.load()).machines] == ["held"]


async def test_one_process_cannot_open_it_twice_and_another_name_for_it_is_no_way_around(
    journal: SqlJournal, tmp_path: Path
) -> None:
    (tmp_path / "other.db").symlink_to("journal.db")
    other = SqlJournal.sqlite(tmp_path / "other.db")
    with pytest.raises(JournalLockedError, match=f"process {os.getpid()} "):
        await other.open()
    await journal.close()
    await other.open()
    await other.close()


async def test_the_identity_outlives_a_journal_that_is_lost(journal: SqlJournal, sqlite_place: SqlitePlace) -> None:
    """Law 11: the clouds' machines can only be taken in again if it is known which are ours."""
    cluster_id = (await journal.load()).cluster_id
    await journal.write(change(machine("m-1")))
    await journal.close()
    for file in sqlite_place.path.parent.glob("journal.db*"):
        if file.suffix != ".cluster-id":
            file.unlink()
    contents = await (await sqlite_place.opened()).load()
    assert (contents.cluster_id, list(contents.machines)) == (cluster_id, [])


async def test_the_file_with_the_identity_is_made_again_when_it_is_missing(
    journal: SqlJournal, sqlite_place: SqlitePlace
) -> None:
    cluster_id = (await journal.load()).cluster_id
    await journal.close()
    file = sqlite_place.path.with_name("journal.db.cluster-id")
    assert file.read_text() == f"{cluster_id}\n"
    file.unlink()
    await sqlite_place.opened()
    assert file.read_text() == f"{cluster_id}\n"


async def test_a_new_journal_beside_an_identity_that_is_not_the_configured_one_is_refused(
    sqlite_place: SqlitePlace,
) -> None:
    sqlite_place.path.with_name("journal.db.cluster-id").write_text("first-id\n")
    with pytest.raises(JournalBrokenError, match=r"first-id.*second-id"):
        await sqlite_place.journal(cluster_id="second-id").open()
    assert (await (await sqlite_place.opened(cluster_id="first-id")).load()).cluster_id == "first-id"


async def test_an_identity_file_with_nonsense_in_it_is_not_taken_for_an_identity(sqlite_place: SqlitePlace) -> None:
    sqlite_place.path.with_name("journal.db.cluster-id").write_text("?!\n")
    with pytest.raises(JournalBrokenError, match="put back the id that is in the machines' tags"):
        await sqlite_place.journal().open()


@pytest.mark.parametrize("where", ["first page", "in the middle", "cut short", "no database at all"])
async def test_a_damaged_journal_is_refused_with_what_to_do(
    journal: SqlJournal, sqlite_place: SqlitePlace, where: str
) -> None:
    await journal.write(change(*machines(500)))
    await journal.close()
    content = bytearray(sqlite_place.path.read_bytes())
    if where == "first page":
        content[:64] = b"\xff" * 64
    elif where == "in the middle":
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 8192] = os.urandom(8192)
    elif where == "cut short":
        del content[len(content) // 2 :]
    else:
        content = bytearray(b"cluster: prod\n" * 1000)
    sqlite_place.path.write_bytes(content)
    with pytest.raises(JournalBrokenError, match=r"is damaged .*backup.*takes in its machines from the clouds"):
        await sqlite_place.journal().open()
    # And the instructions are right: moved away, a new journal of the same identity can be made.
    sqlite_place.path.rename(sqlite_place.path.with_name("damaged"))
    assert (await (await sqlite_place.opened()).load()).machines == []


async def test_damage_that_is_met_while_running_is_told_the_same_way(
    journal: SqlJournal, sqlite_place: SqlitePlace
) -> None:
    await journal.write(change(*machines(500)))
    with journal._database.transaction() as connection:
        connection.exec_driver_sql("PRAGMA shrink_memory")
    with sqlite3.connect(sqlite_place.path) as stranger:
        stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    stranger.close()
    with sqlite_place.path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(sqlite_place.path.stat().st_size - 4096))
    journal._database.engine.dispose()  # what is still in memory is right
    with pytest.raises(JournalBrokenError, match="is damaged"):
        await journal.load()


async def test_a_journal_removed_while_running_is_not_written_to_any_more(
    journal: SqlJournal, sqlite_place: SqlitePlace
) -> None:
    """The write would succeed, into a file that nobody will ever open again."""
    sqlite_place.path.unlink()
    with pytest.raises(JournalBrokenError, match="removed or replaced while cloudgraft was running"):
        await journal.write(change(machine("m-1")))
    sqlite_place.path.touch()
    with pytest.raises(JournalBrokenError, match="removed or replaced"):
        await journal.write(change(machine("m-1")))
    await journal.close()
    for file in sqlite_place.path.parent.glob("journal.db-*"):
        file.unlink()
    await journal.open()
    await journal.write(change(machine("m-1")))


async def test_a_full_disk_is_told_and_it_goes_on_once_there_is_room(journal: SqlJournal) -> None:
    await journal.write(change(machine("before")))
    with journal._database.transaction() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(JournalUnavailableError, match="the disk is full: make room") as caught:
        await journal.write(change(*machines(300)))
    assert not caught.value.is_ambiguous
    assert [found.name for found in (await journal.load()).machines] == ["before"]
    with journal._database.transaction() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    await journal.write(change(*machines(300)))
    assert len((await journal.load()).machines) == 301


async def test_a_disk_that_refuses_at_the_commit_leaves_the_outcome_open_until_it_is_read(
    sqlite_place: SqlitePlace,
) -> None:
    """A real limit on the size of files, met in the middle of a write, in a process of its own."""
    with _child("starve", sqlite_place.path) as child:
        output, _ = await asyncio.to_thread(child.communicate)
    told = json.loads(output)
    (error,) = told["errors"]
    assert error["ambiguous"]
    assert "look at its space" in error["message"]
    assert told["written"] > 0
    assert told["full"] in {told["written"], told["written"] + 20}  # all of a change or nothing of it
    assert told["afterwards"] == told["full"] + 1
    again = await sqlite_place.opened()
    assert len((await again.load()).machines) == told["afterwards"]


async def test_a_strangers_lock_delays_nobody_but_the_journal_and_it_goes_on_afterwards(
    sqlite_place: SqlitePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_MS", 200)
    journal = await sqlite_place.opened()
    stranger = sqlite3.connect(sqlite_place.path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    turns = 0
    writing = asyncio.ensure_future(journal.write(change(machine("m-1"))))
    while not writing.done():
        await asyncio.sleep(0.001)
        turns += 1
    with pytest.raises(JournalUnavailableError, match=r"another program .*holds a lock") as caught:
        await writing
    assert not caught.value.is_ambiguous
    assert turns > 1  # the event loop was never blocked: it would turn once, afterwards
    assert (await journal.load()).machines == []  # reading needs no lock
    stranger.execute("ROLLBACK")
    stranger.close()
    await journal.write(change(machine("m-1")))


async def test_a_write_that_hangs_is_given_up_and_settled_by_the_next_load(
    sqlite_place: SqlitePlace, monkeypatch: pytest.MonkeyPatch, passes: Callable[[float], None]
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_MS", 60_000)  # it hangs for as long as the stranger wants
    journal = await sqlite_place.opened()
    stranger = sqlite3.connect(sqlite_place.path, isolation_level=None, check_same_thread=False)
    stranger.execute("BEGIN IMMEDIATE")
    begun = told_when_it_writes(journal, monkeypatch)
    first = asyncio.ensure_future(journal.write(change(machine("m-1"))))
    await until(begun.is_set)
    passes(15)
    with pytest.raises(JournalUnavailableError, match="did not answer within 15 s") as caught:
        await first
    assert caught.value.is_ambiguous
    second = asyncio.ensure_future(journal.write(change(machine("m-2"))))
    await asyncio.sleep(0)  # it begins to wait
    passes(15)
    with pytest.raises(JournalUnavailableError) as waiting:
        await second
    assert not waiting.value.is_ambiguous  # it had not begun
    stranger.execute("ROLLBACK")
    stranger.close()
    assert [found.name for found in (await journal.load()).machines] == ["m-1"]


async def test_a_place_that_cannot_hold_a_journal_is_told(tmp_path: Path) -> None:
    with pytest.raises(JournalBrokenError, match="the journal's directory must exist and be writable"):
        await SqlJournal.sqlite(tmp_path / "nowhere" / "journal.db").open()
    (tmp_path / "folder").mkdir()
    with pytest.raises(JournalBrokenError, match=r"cannot write .*/folder: Is a directory"):
        await SqlJournal.sqlite(tmp_path / "folder").open()


async def test_who_only_looks_makes_nothing_and_keeps_nobody_out(journal: SqlJournal, tmp_path: Path) -> None:
    await journal.write(change(machine("m-1")))
    looking = SqliteDatabase(tmp_path / "journal.db")
    looking.open(Access.LOOK)
    with looking.transaction() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM machines").scalar() == 1
    await journal.write(change(machine("m-2")))
    looking.close()
    missing = SqliteDatabase(tmp_path / "missing.db")
    with pytest.raises(NotFoundError, match="there is no journal at"):
        missing.open(Access.LOOK)
    assert not (tmp_path / "missing.db").exists()


async def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "späce ?#%41&mode=memory.db")
    journal = await place.opened()
    await journal.write(change(machine("m-1")))
    await place.let_go()
    assert place.path.stat().st_size > 0
    assert len((await (await place.opened()).load()).machines) == 1
    await place.let_go()


async def test_an_open_that_fails_leaves_nothing_locked(sqlite_place: SqlitePlace) -> None:
    sqlite_place.path.write_bytes(b"nonsense" * 1000)
    for _ in range(2):
        with pytest.raises(JournalBrokenError, match="is damaged"):
            await sqlite_place.journal().open()
    sqlite_place.path.unlink()
    await sqlite_place.opened()


async def test_an_open_that_is_cancelled_leaves_nothing_locked(sqlite_place: SqlitePlace) -> None:
    opening = asyncio.ensure_future(sqlite_place.journal().open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await sqlite_place.opened()


@pytest.mark.thorough
async def test_5000_machines_and_100000_events_load_in_well_under_a_second(journal: SqlJournal) -> None:
    """Counted in time of the processor, so that a busy machine does not fail it."""
    for number in range(5):
        await journal.write(change(*machines(1000, prefix=f"m-{number}")))
    with journal._database.transaction(Mode.WRITE) as connection:
        connection.exec_driver_sql(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
            "INSERT INTO events (at, kind, message, cloud, group_id, machine, data) "
            "SELECT i, 'told', 'because', 'lab', 'g-' || (i % 100), 'm-' || (i % 5000), '{}' FROM n"
        )
        seal_all(connection, schema.events)
    began = time.process_time()
    contents = await journal.load()
    history = await journal.events(EventQuery(machine="m-7"))
    of_group = await journal.events(EventQuery(group="g-7"))
    assert time.process_time() - began < 1.0
    assert (len(contents.machines), len(history), len(of_group)) == (5000, 20, 100)


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    """What it holds is replaced: it must not be somebody's file."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "journal.db.lock").symlink_to(victim)
    with pytest.raises(JournalBrokenError):
        FileLock(tmp_path / "journal.db.lock", what="journal").acquire()
    assert victim.read_text() == "precious"


def test_a_lock_on_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # no file may grow, as on a full disk
    try:
        with pytest.raises(JournalBrokenError, match=r"cannot write .*journal\.db\.lock: .*make room on its disk"):
            FileLock(tmp_path / "journal.db.lock", what="journal").acquire()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    FileLock(tmp_path / "journal.db.lock", what="journal").acquire()
