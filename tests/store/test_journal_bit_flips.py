"""A bit that flips in a journal's file is detected, or changes nothing that is read."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.store.databases.database import Access
from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.identity import Configured, settle_owner
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.records import Contents, Event, Progress, State
from cloudgraft.store.sql import SqlJournal
from cloudgraft.store.statements import read_contents, read_events
from tests.store.places import event, machines
from tests.store.test_journal_contract import FULL

_CLUSTER = Configured("prod")
Loaded = tuple[Contents, list[Event]]


@pytest.fixture
async def image(tmp_path: Path) -> bytes:
    """A journal with rows in all of its tables, as a server leaves it."""
    journal = SqlJournal.sqlite(tmp_path / "journal.db", cluster="prod", cluster_id="abcdefghij")
    await journal.open()
    await journal.write(FULL)
    for number in range(5):
        records = machines(8, prefix=f"big-{number}")
        events = [event(at=1.7e9 + number, machine=record.name, state=State.RUNNING) for record in records]
        progress = Progress(at=1.7e9 + number, boot_id="3f1c", boot_time=60.0 * number)
        await journal.write(type(FULL)(machines=records, events=events, progress=progress))
    await journal.close()
    return (tmp_path / "journal.db").read_bytes()


def _is_named(database: SqliteDatabase) -> bool:
    try:
        return not check_journal(database, _CLUSTER).is_sound
    except CloudgraftError:
        return True
    finally:
        database.close()


class _Flipper:
    """Flips one bit after another, and says what came of it. One database object: statements are compiled once."""

    def __init__(self, directory: Path, image: bytes) -> None:
        self._directory, self._image = directory, image
        self._database = SqliteDatabase(directory / "journal.db")
        self._put(image)
        self._sound = self._load()
        self._database.close()
        self.missed: list[int] = []

    def flip(self, bit: int) -> str:
        flipped = bytearray(self._image)
        flipped[bit // 8] ^= 1 << bit % 8
        self._put(bytes(flipped))
        try:
            if self._load() == self._sound:
                return "harmless"
        except CloudgraftError:
            return "refused"
        finally:
            self._database.close()
        self._put(bytes(flipped))
        if _is_named(self._database):
            return "named by db check"
        self.missed.append(bit)
        return "undetected"

    def _put(self, content: bytes) -> None:
        for file in self._directory.iterdir():
            file.unlink()
        (self._directory / "journal.db").write_bytes(content)
        (self._directory / "journal.db.cluster-id").write_text("abcdefghij\n")

    def _load(self) -> Loaded:
        """What a server would work with."""
        self._database.open(Access.SERVE)
        settle_owner(self._database, _CLUSTER)
        with self._database.transaction() as connection:
            return read_contents(connection), read_events(connection, EventQuery(limit=10_000))


def _flip(tmp_path: Path, image: bytes, count: int, seed: int) -> Counter[str]:
    """Most of them in bytes that are in use: the rest of a page means nothing to SQLite."""
    directory = tmp_path / "flipped"
    directory.mkdir()
    chance, used = random.Random(seed), [place for place, byte in enumerate(image) if byte]
    places = [chance.choice(used) if number % 5 else chance.randrange(len(image)) for number in range(count)]
    flipper = _Flipper(directory, image)
    counts = Counter(flipper.flip(place * 8 + chance.randrange(8)) for place in places)
    print(f"{count} flips: {dict(counts)}")  # shown with -s
    assert not flipper.missed
    return counts


async def test_no_flipped_bit_is_believed(tmp_path: Path, image: bytes) -> None:
    counts = _flip(tmp_path, image, count=200, seed=16)
    assert counts["refused"] > 100
    assert counts["named by db check"] == 0  # of what is served, nothing is wrong


@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_no_flipped_bit_of_many_is_believed(tmp_path: Path, image: bytes) -> None:
    _flip(tmp_path, image, count=6000, seed=17)
