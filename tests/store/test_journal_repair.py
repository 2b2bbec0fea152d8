"""`repair_journal`: restores what the checksum proves, removes the rest, and touches nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.store.databases.database import Mode
from cloudgraft.store.identity import Configured
from cloudgraft.store.journal import EventQuery, JournalBrokenError, JournalLockedError
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.maintenance.repair import Finding, repair_journal
from cloudgraft.store.records import Contents
from tests.store.places import Place, SqlitePlace, renewed
from tests.store.test_journal_contract import FULL

_GIVEN = Configured("prod", "prod-id")


async def _filled(place: Place) -> Contents:
    journal = await place.opened(cluster_id="prod-id")
    await journal.write(FULL)
    contents = await journal.load()
    await place.let_go()
    return contents


def _damage(place: Place, *statements: str) -> None:
    database = place.database()
    with database.transaction(Mode.WRITE) as connection:
        for statement in statements:
            connection.execute(text(statement))
    database.close()


def _repair(place: Place, *, apply: bool, configured: Configured | None = None) -> list[Finding]:
    database = place.database()
    try:
        return repair_journal(database, configured or Configured(), apply=apply)
    finally:
        database.close()


def _is_sound(place: Place) -> bool:
    database = place.database()
    try:
        return check_journal(database).is_sound
    finally:
        database.close()


_ONE_BIT = {
    "UPDATE machines SET machine_id = 'id-m-3' WHERE name = 'm-2'": "machines m-2",  # 2 and 3 differ in one bit
    "UPDATE machines SET attempts = 16 WHERE name = 'm-1'": "machines m-1",
    "UPDATE pauses SET since = 5.75": "pauses group/small",
    "UPDATE clouds SET checksum = checksum + 1 - 2 * (checksum & 1)": "clouds lab",
    "UPDATE journal SET cluster_id = 'prod-ie'": "journal 1",
    "UPDATE events SET message = 'bebause'": "events 1",
}


async def test_a_row_with_one_wrong_bit_is_restored(place: Place) -> None:
    before = await _filled(place)
    _damage(place, *_ONE_BIT)
    shown = _repair(place, apply=False)
    assert sorted(found.what.partition(":")[0] for found in shown) == sorted(_ONE_BIT.values())
    assert {found.action for found in shown} == {"restored: one bit had changed"}
    assert not _is_sound(place)  # it was only shown
    assert _repair(place, apply=True) == shown
    assert _is_sound(place)
    journal = await place.opened()
    after = await journal.load()
    assert (after.machines, after.pauses, after.clouds, after.cluster_id) == (
        before.machines,
        before.pauses,
        before.clouds,
        before.cluster_id,
    )
    assert [event.message for event in await journal.events(EventQuery())] == ["because"]


async def test_a_row_that_cannot_be_restored_is_removed_and_clouds_are_listed_again(place: Place) -> None:
    before = await _filled(place)
    _damage(place, "UPDATE machines SET provider_id = 'lab://another' WHERE name = 'm-2'")
    (found,) = _repair(place, apply=True)
    assert found.action == "removed"
    assert "every cloud is listed" in found.follows
    after = await (await place.opened()).load()
    assert list(after.machines) == [record for record in before.machines if record.name != "m-2"]
    assert (after.clouds, after.groups, after.pauses) == ([], before.groups, before.pauses)


async def test_an_ended_pause_is_said_loudly(place: Place) -> None:
    await _filled(place)
    _damage(place, "UPDATE pauses SET reason = 'another reason'")
    (found,) = _repair(place, apply=False)
    assert "NOT PAUSED any more" in found.follows


async def test_whose_journal_it_is_comes_from_the_file_or_the_operator(place: Place) -> None:
    await _filled(place)
    _damage(place, "UPDATE journal SET cluster_id = 'nonsense'")
    if isinstance(place, SqlitePlace):
        assert _repair(place, apply=False)[0].action == "restored from the .cluster-id file"
        place.path.with_name("journal.db.cluster-id").unlink()
    with pytest.raises(PreconditionError, match="give it as clusterId in the configuration"):
        _repair(place, apply=True)
    assert _repair(place, apply=True, configured=_GIVEN)[0].action == "written as the configuration says"
    assert (await (await place.opened()).load()).cluster_id == "prod-id"


async def test_a_damaged_index_is_made_anew_and_undecodable_text_is_named(sqlite_place: SqlitePlace) -> None:
    before = await _filled(sqlite_place)
    content = sqlite_place.path.read_bytes()
    at = content.rindex(b"m-1")  # an entry of an index, or a row: whichever it is, it is found
    sqlite_place.path.write_bytes(content.replace(b"id-m-1", b"\xffd-m-1")[:at] + b"m-\xff" + content[at + 3 :])
    with pytest.raises(JournalBrokenError):
        await sqlite_place.opened()
    await sqlite_place.let_go()
    assert any(found.what.startswith("machines m-1:") for found in _repair(sqlite_place, apply=False))
    _repair(sqlite_place, apply=True)
    assert _is_sound(sqlite_place)
    assert list(sqlite_place.path.parent.glob("journal.db.backup-repair-*"))
    after = await (await sqlite_place.opened()).load()
    assert {record.name for record in after.machines} <= {record.name for record in before.machines}


async def test_nothing_is_repaired_while_a_server_has_the_journal(place: Place) -> None:
    journal = await place.opened()
    assert _repair(place, apply=False) == []
    async with renewed(journal):
        with pytest.raises(JournalLockedError, match=r"in use by process \d+"):
            await asyncio.to_thread(_repair, place, apply=True)


async def test_a_sound_journal_is_left_as_it_is(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "journal.db")
    before = await _filled(place)
    assert _repair(place, apply=True) == []
    assert await (await place.opened(cluster_id="prod-id")).load() == before
    assert not list(place.path.parent.glob("*backup*"))
    await place.let_go()
