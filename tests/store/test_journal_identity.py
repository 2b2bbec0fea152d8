"""The journal of another cluster is refused; only the operator's `clusterId` decides otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.store.databases.sqlite import SqliteDatabase
from cloudgraft.store.identity import Configured, owner_of
from cloudgraft.store.journal import JournalBrokenError
from cloudgraft.store.maintenance.check import check_journal
from cloudgraft.store.sql import SqlJournal
from cloudgraft.store.statements import Owner
from tests.store.places import Place, change, machine

_PROD = Owner("prod-id", "prod")


async def _open(path: Path, cluster: str, cluster_id: str | None = None, *, name: str = "") -> str:
    """Opens it as a server does, writes a machine where one is named, and closes it. Returns the cluster id."""
    journal = SqlJournal.sqlite(path, cluster=cluster, cluster_id=cluster_id)
    try:
        await journal.open()
        if name:
            await journal.write(change(machine(name)))
        return (await journal.load()).cluster_id
    finally:
        await journal.close()


def _file(path: Path) -> Path:
    return path.with_name(f"{path.name}.cluster-id")


async def test_another_clusters_journal_is_refused_and_the_file_is_kept(tmp_path: Path) -> None:
    alpha, beta = tmp_path / "alpha.db", tmp_path / "beta.db"
    ours = await _open(alpha, "alpha", name="m-1")
    theirs = await _open(beta, "beta", name="m-2")
    alpha.rename(tmp_path / "saved.db")
    beta.rename(alpha)
    with pytest.raises(JournalBrokenError, match=rf"of the cluster beta .*clusterId: {theirs}"):
        await _open(alpha, "alpha")
    with pytest.raises(JournalBrokenError, match=f"belongs to the cluster id {theirs}"):  # as named by mistake
        await _open(alpha, "alpha", ours)
    assert _file(alpha).read_text() == f"{ours}\n"
    (tmp_path / "saved.db").rename(alpha)
    assert await _open(alpha, "alpha") == ours


async def test_a_namesakes_journal_is_refused_by_the_file_beside_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    ours, theirs = await _open(here, "prod", name="m-1"), await _open(there, "prod", name="m-2")
    there.rename(here)
    with pytest.raises(JournalBrokenError, match=rf"cluster id {theirs}, but its .cluster-id file says {ours}"):
        await _open(here, "prod")
    assert _file(here).read_text() == f"{ours}\n"
    database = SqliteDatabase(here)
    (problem,) = check_journal(database, Configured("prod")).problems
    database.close()
    assert f"clusterId: {theirs}" in problem.what


async def test_the_operators_word_keeps_the_other_file_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    ours = await _open(path, "prod", name="m-1")
    _file(path).write_text("another-id\n")
    with pytest.raises(JournalBrokenError):
        await _open(path, "prod")
    assert await _open(path, "prod", ours) == ours
    assert _file(path).read_text() == f"{ours}\n"
    assert (tmp_path / "journal.db.cluster-id.another-id").read_text() == "another-id\n"
    assert await _open(path, "prod") == ours  # the word is needed once


async def test_a_renamed_cluster_needs_its_cluster_id_once(place: Place) -> None:
    before = place.journal(cluster="old")
    await before.open()
    cluster_id = (await before.load()).cluster_id
    await before.close()
    with pytest.raises(JournalBrokenError, match=rf"if the cluster was renamed, say so with clusterId: {cluster_id}"):
        await place.journal(cluster="new").open()
    for given in (cluster_id, None):
        journal = place.journal(cluster="new", cluster_id=given)
        await journal.open()
        assert (await journal.load()).cluster_id == cluster_id
        await journal.close()
    with pytest.raises(JournalBrokenError, match="of the cluster new"):
        await place.journal(cluster="old").open()


async def test_a_journal_without_a_name_takes_the_configured_one(place: Place) -> None:
    await place.opened()
    await place.let_go()
    named = place.journal(cluster="prod")
    await named.open()
    await named.close()
    with pytest.raises(JournalBrokenError, match="of the cluster prod"):
        await place.journal(cluster="other").open()


@pytest.mark.parametrize(
    ("stored", "beside", "configured", "owner"),
    [
        (None, None, Configured("prod", "given-id"), Owner("given-id", "prod")),
        (None, "beside-id", Configured("prod"), Owner("beside-id", "prod")),
        (None, "beside-id", Configured("prod", "given-id"), None),
        (_PROD, None, Configured("prod"), _PROD),
        (_PROD, "prod-id", Configured(), _PROD),
        (_PROD, "prod-id", Configured("other"), None),
        (_PROD, "other-id", Configured("prod"), None),
        (_PROD, "other-id", Configured(), None),
        (_PROD, "other-id", Configured("prod", "prod-id"), _PROD),
        (_PROD, "other-id", Configured("new", "prod-id"), Owner("prod-id", "new")),
        (_PROD, "other-id", Configured("new", "other-id"), None),
        (_PROD, "prod-id", Configured("prod", "other-id"), Owner("other-id", "prod")),  # if it has no machines
        (Owner("prod-id", ""), "prod-id", Configured("prod"), _PROD),
    ],
)
def test_name_id_and_file_must_agree_where_they_are_present(
    stored: Owner | None, beside: str | None, configured: Configured, owner: Owner | None
) -> None:
    if owner is None:
        with pytest.raises(JournalBrokenError):
            owner_of("journal.db", stored, beside, configured)
    else:
        assert owner_of("journal.db", stored, beside, configured) == owner
