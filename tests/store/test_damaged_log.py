"""A write-ahead log that a crash left behind: damage that costs commits is refused, an honest loss of power is not."""

from __future__ import annotations

import itertools
import random
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudgraft.store.databases.damaged_log import find_damage
from cloudgraft.store.databases.database import Access
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.identity import Configured, settle_owner
from cloudgraft.store.journal import EventQuery, JournalBrokenError
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.maintenance.repair import repair_journal
from cloudgraft.store.records import Contents, Event, State
from cloudgraft.store.sql import SqlJournal
from cloudgraft.store.statements import read_contents, read_events
from tests.store.places import event, machines
from tests.store.test_journal_contract import FULL

CLUSTER = Configured("prod")
FRAME = 24 + 4096
Loaded = tuple[Contents, list[Event]]


@dataclass(frozen=True)
class Left:
    """What a killed server left, and what a server read after each of its commits."""

    database: bytes
    log: bytes
    states: list[Loaded]

    @property
    def commits(self) -> list[int]:
        """The numbers of the frames with which commits end, from 0."""
        return [number for number in range(frames(self.log)) if self.log[32 + number * FRAME + 4 :][:4] != bytes(4)]

    @property
    def last(self) -> range:
        """The bytes of the last commit."""
        return range(32 + (self.commits[-2] + 1) * FRAME, len(self.log))


def frames(log: bytes) -> int:
    return (len(log) - 32) // FRAME


def put(directory: Path, database: bytes, log: bytes) -> Path:
    directory.mkdir(exist_ok=True)
    for file in directory.iterdir():
        file.unlink()
    path = directory / "journal.db"
    path.write_bytes(database)
    path.with_name("journal.db-wal").write_bytes(log)
    path.with_name("journal.db.cluster-id").write_text("abcdefghij\n")
    return path


def load(path: Path) -> Loaded:
    """What a server would work with."""
    database = SqliteDatabase(path)
    try:
        database.open(Access.SERVE)
        settle_owner(database, CLUSTER)
        with database.transaction() as connection:
            return read_contents(connection), read_events(connection, EventQuery(limit=10_000))
    finally:
        database.close()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes meanwhile."""
    monkeypatch.setattr("cloudgraft.store.databases.damaged_log._AGAIN", 0.0)


@pytest.fixture
async def left(tmp_path: Path) -> Left:
    own = tmp_path / "own"
    own.mkdir()
    journal = SqlJournal.sqlite(own / "journal.db", cluster="prod", cluster_id="abcdefghij")
    await journal.open()
    copies = []
    for number in range(6):
        records = machines(number % 3 * 4 + 1, prefix=f"m-{number}")
        events = [event(at=1.7e9 + number, machine=record.name, state=State.RUNNING) for record in records]
        await journal.write(FULL if number == 0 else type(FULL)(machines=records, events=events))
        copies.append(((own / "journal.db").read_bytes(), (own / "journal.db-wal").read_bytes()))
    await journal.close()
    states = [load(put(tmp_path / "copy", *copy)) for copy in copies]
    assert all(one != other for one, other in itertools.pairwise(states))
    return Left(*copies[-1], states)


# -- damage ------------------------------------------------------------------------------------------------------------


def judged(left: Left, log: bytes, directory: Path) -> str:
    try:
        found = load(put(directory, left.database, log))
    except JournalBrokenError:
        return "refused"
    if found == left.states[-1]:
        return "harmless"
    return "without the last commit" if found == left.states[-2] else "lost"


def flipped(left: Left, places: Iterator[int], directory: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for place in places:
        log = bytearray(left.log)
        log[place // 8] ^= 1 << place % 8
        outcome = judged(left, bytes(log), directory)
        assert outcome != "lost", f"bit {place}"
        assert outcome != "without the last commit" or place // 8 in left.last, f"bit {place}"
        counts[outcome] += 1
    return counts


def test_a_server_believes_no_flipped_bit_in_the_log_but_of_the_last_commit(left: Left, tmp_path: Path) -> None:
    chance = random.Random(5)
    heads = [32 + number * FRAME + chance.randrange(24) for number in chance.sample(range(frames(left.log)), 12)]
    pages = [32 + number * FRAME + 24 + chance.randrange(4096) for number in chance.sample(range(frames(left.log)), 12)]
    places = [chance.randrange(24), 24 + chance.randrange(8), *heads, *pages]
    counts = flipped(left, (place * 8 + chance.randrange(8) for place in places), tmp_path / "flipped")
    assert counts["refused"] > len(places) // 2


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_server_believes_none_of_many_flipped_bits(left: Left, tmp_path: Path) -> None:
    chance = random.Random(6)
    places = (chance.randrange(len(left.log) * 8) for _ in range(1000))
    print(flipped(left, places, tmp_path / "flipped"))


# -- the log alone, with small pages -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Commits of one frame and of several."""
    path = tmp_path_factory.mktemp("small") / "a.db"
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA page_size=512",
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE t(a)",
    ):
        connection.execute(statement)
    for number in range(8):
        commit(connection, 1 + number % 3, 300)
    log = path.with_name("a.db-wal").read_bytes()
    connection.close()
    return log


SMALL = 24 + 512


def last_commits(log: bytes) -> tuple[int, int]:
    """Where the last commit begins, and the last frame of the one before."""
    ends = [at for at in range(32, len(log), SMALL) if log[at + 4 : at + 8] != bytes(4)]
    return ends[-2] + SMALL, ends[-2]


def test_every_flipped_bit_in_front_of_the_last_commit_is_damage(small: bytes) -> None:
    chance = random.Random(8)
    end, _ = last_commits(small)
    heads = [at + byte for at in range(32, end, SMALL) for byte in range(24)]
    places = [*range(32), *heads, *(chance.randrange(end) for _ in range(200))]
    for place in places:
        log = bytearray(small)
        log[place] ^= 1 << chance.randrange(8)
        damage = find_damage(bytes(log))
        assert damage is not None, place
        assert damage.frame == (place - 32) // SMALL + 1
        assert small[: damage.sound] == log[: damage.sound]


def test_a_block_that_was_lost_is_damage(small: bytes) -> None:
    """Zeros, or something else. Not where the last two commits meet: there it may be the last one's."""
    _, end = last_commits(small)
    for start in range(512, end - 512, 64):
        for content in (bytes(512), bytes(range(256)) * 2):
            damage = find_damage(small[:start] + content + small[start + 512 :])
            assert damage is not None, start
            assert damage.lost >= 1


def test_a_sound_log_is_no_damage(left: Left, small: bytes) -> None:
    assert find_damage(left.log) is None
    assert find_damage(small) is None
    assert find_damage(b"") is None
    assert find_damage(small[:32]) is None


def test_a_log_that_ends_anywhere_is_no_damage(small: bytes) -> None:
    """A process that is killed, or a disk that is full, in the middle of a write."""
    for end in range(0, len(small), 37):
        assert find_damage(small[:end]) is None, end


def test_a_loss_of_power_in_the_last_commit_is_no_damage(small: bytes) -> None:
    """The disk may have written any of its sectors. The others hold zeros, or what an earlier use of the log left."""
    chance = random.Random(7)
    older = bytearray(small)  # the same frames with other salts, each of them the end of a commit
    for at in range(32, len(small), SMALL):
        older[at + 4 : at + 16] = b"\x00\x00\x00\x09old salt"
    begin, _ = last_commits(small)
    for _ in range(300):
        log = bytearray(small)
        for start in range(begin // 512 * 512, len(log), 512):
            low, high = max(start, begin), min(start + 512, len(log))
            if chance.random() < 0.5:
                log[low:high] = chance.choice([bytes(high - low), older[low:high]])
        assert find_damage(bytes(log)) is None


def commit(connection: sqlite3.Connection, rows: int, size: int = 3000) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO t VALUES (?)", [(b"x" * size,) for _ in range(rows)])
    connection.execute("COMMIT")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA cache_size=5", "CREATE TABLE t(a)"):
        connection.execute(statement)
    yield connection
    connection.close()


def leftovers(log: bytes) -> int:
    """Frames of this use of the log that SQLite does not read."""
    salts, sums = log[16:24], struct.unpack(">2I", log[24:32])
    count = 0
    for at in range(32, len(log) - FRAME + 1, FRAME):
        words = struct.unpack("<2I", log[at : at + 8]) + struct.unpack("<1024I", log[at + 24 : at + FRAME])
        first, second = sums
        for one, other in zip(words[::2], words[1::2], strict=True):
            first = (first + one + second) & 0xFFFFFFFF
            second = (second + other + first) & 0xFFFFFFFF
        if (first, second) != struct.unpack(">2I", log[at + 16 : at + 24]):
            return sum(log[one + 8 : one + 16] == salts for one in range(at, len(log) - FRAME + 1, FRAME))
        sums = (first, second)
    return count


def test_what_is_left_of_a_write_that_was_rolled_back_is_no_damage(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    commit(database, 3)
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?)", [(b"x" * 3000,) for _ in range(50)])  # more than the cache holds
    database.execute("ROLLBACK")
    commit(database, 1)
    log = (tmp_path / "a.db-wal").read_bytes()
    assert leftovers(log) > 10
    assert find_damage(log) is None


def test_what_is_left_of_an_interrupted_commit_that_was_written_over_is_no_damage(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    commit(database, 3)
    before = len((tmp_path / "a.db-wal").read_bytes())
    commit(database, 30)
    log = bytearray((tmp_path / "a.db-wal").read_bytes())
    content = (tmp_path / "a.db").read_bytes()
    log[before + 5 * FRAME : before + 6 * FRAME] = bytes(FRAME)  # the power went before the disk had this one
    copy = tmp_path / "b.db"
    copy.write_bytes(content)
    copy.with_name("b.db-wal").write_bytes(log)
    again = sqlite3.connect(copy, isolation_level=None)
    commit(again, 1)
    log = bytearray(copy.with_name("b.db-wal").read_bytes())
    assert leftovers(bytes(log)) > 10
    assert find_damage(bytes(log)) is None
    again.close()


def test_what_an_earlier_use_of_the_log_left_is_no_damage(database: sqlite3.Connection, tmp_path: Path) -> None:
    for _ in range(10):
        commit(database, 3)
    database.execute("PRAGMA wal_checkpoint(RESTART)")
    commit(database, 1)
    log = (tmp_path / "a.db-wal").read_bytes()
    assert frames(log) > 20
    assert find_damage(log) is None


# -- the way on --------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(left: Left, tmp_path: Path) -> Path:
    log = bytearray(left.log)
    log[32 + (left.commits[-4] + 1) * FRAME + 100] ^= 4  # in the fourth of six
    return put(tmp_path / "damaged", left.database, bytes(log))


def files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith(".lock")}


def test_a_server_and_a_check_refuse_it_and_touch_nothing(damaged: Path) -> None:
    before = files(damaged.parent)
    for _ in range(2):
        with pytest.raises(JournalBrokenError, match=r"commits are lost, at least 2\. Run `cloudgraft db repair`"):
            load(damaged)
        with pytest.raises(JournalBrokenError, match="is damaged in frame"):
            check_journal(SqliteDatabase(damaged), CLUSTER)
    assert files(damaged.parent) == before


def test_a_repair_that_is_only_shown_touches_nothing(damaged: Path) -> None:
    before = files(damaged.parent)
    (finding,) = repair_journal(SqliteDatabase(damaged), CLUSTER, apply=False)
    assert "is damaged in frame" in finding.what
    assert files(damaged.parent) == before


def repair(path: Path) -> list[str]:
    database = SqliteDatabase(path)
    try:
        return [finding.what for finding in repair_journal(database, CLUSTER, apply=True)]
    finally:
        database.close()


def test_a_repair_goes_back_to_the_commit_before_and_has_clouds_listed(damaged: Path, left: Left) -> None:
    before = files(damaged.parent)
    assert left.states[2][0].clouds, "a cloud was taken in"
    assert "is damaged in frame" in repair(damaged)[0]
    contents, events = load(damaged)
    assert (contents.machines, events) == (left.states[2][0].machines, left.states[2][1])
    assert not contents.clouds
    kept = {name: content for name, content in files(damaged.parent).items() if ".damaged-" in name}
    assert sorted(kept.values(), key=len) == sorted((before["journal.db"], before["journal.db-wal"]), key=len)
    assert repair(damaged) == []


def test_a_repair_that_was_interrupted_is_not_taken_for_done(damaged: Path) -> None:
    database = SqliteDatabase(damaged)
    database.open(Access.REPAIR)  # the log is cut
    database.close()
    with pytest.raises(JournalBrokenError, match="is damaged in frame"):
        load(damaged)
    assert "is damaged in frame" in repair(damaged)[0]
    assert not load(damaged)[0].clouds
