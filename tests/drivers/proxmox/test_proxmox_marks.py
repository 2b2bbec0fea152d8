"""Marks on machines that somebody else made, and VMIDs that are given away again (law 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.proxmox.driver import ProxmoxDriver
from cloudgraft.engine.engine import Engine
from cloudgraft.engine.groups.desired import CloudDeclaration, DesiredState, GroupDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_NAME
from cloudgraft.engine.operations import adoption, release
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.blocking import as_driver
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import CloudgraftError, NotFoundError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import State
from cloudgraft.store.sql import SqlJournal
from clouds.servers.proxmox_fake import FakeProxmox
from clouds.servers.proxmox_fake.data import LOCAL, Guest
from tests.drivers.proxmox.proxmox_stage import proxmox_driver, soon

MARKS = {TAG_CLUSTER_ID: "c1", TAG_NAME: "worker"}


@pytest.fixture
def pooled(fake: FakeProxmox, tmp_path: Path) -> ProxmoxDriver:
    """A driver that shows what is in its pool, and a machine of somebody there."""
    put(fake)
    return proxmox_driver(fake, tmp_path, pool="kubernetes")


def put(fake: FakeProxmox, vmid: int = 500, **config: str) -> None:
    config = {"name": "worker", **config}
    fake.cluster.guests[vmid] = Guest(node="pve1", config=config, pool="kubernetes", is_running=True)


def test_a_machine_is_marked_and_its_own_tags_stay(fake: FakeProxmox, pooled: ProxmoxDriver) -> None:
    put(fake, tags="backup;web")
    (before,) = pooled.list()
    pooled.mark(before, MARKS)
    (marked,) = pooled.list()
    assert (before.tags, marked.tags, marked.name) == ({}, MARKS, "worker")
    assert {"backup", "web"} <= set(fake.cluster.guests[500].config["tags"].split(";"))
    pooled.mark(marked, dict.fromkeys(MARKS))
    assert fake.cluster.guests[500].config["tags"] == "backup;web"
    (after,) = pooled.list()
    assert after == before


def test_a_machine_that_had_no_tags_has_none_again(fake: FakeProxmox, pooled: ProxmoxDriver) -> None:
    (before,) = pooled.list()
    pooled.mark(before, MARKS)
    pooled.mark(before, dict.fromkeys(MARKS))
    assert "tags" not in fake.cluster.guests[500].config


def test_a_clone_of_a_marked_machine_is_not_taken_for_it(fake: FakeProxmox, pooled: ProxmoxDriver) -> None:
    (before,) = pooled.list()
    pooled.mark(before, MARKS)
    put(fake, 501, tags=fake.cluster.guests[500].config["tags"])
    assert {machine.machine_id: bool(machine.tags) for machine in pooled.list()} == {"500": True, "501": False}


@pytest.mark.parametrize("machine_id", ["501", "web-1"])
def test_what_is_not_there_is_not_marked(pooled: ProxmoxDriver, machine_id: str) -> None:
    with pytest.raises(NotFoundError):
        pooled.mark(Machine(name="worker", machine_id=machine_id), MARKS)


def test_a_vmid_that_is_another_machines_by_now_is_not_marked(fake: FakeProxmox, pooled: ProxmoxDriver) -> None:
    (seen,) = pooled.list()
    put(fake, name="database")
    with pytest.raises(NotFoundError, match="another machine by now"):
        pooled.mark(seen, MARKS)
    assert "tags" not in fake.cluster.guests[500].config


# -- with an engine ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def engine(pooled: ProxmoxDriver, tmp_path: Path) -> AsyncIterator[Engine]:
    settings = CloudSettings(name="lab", create_timeout=timedelta(seconds=30))
    group = GroupDeclaration(
        id="g", cloud="lab", min_size=0, max_size=10, machine={"shape": "small", "template": LOCAL}
    )
    clouds = {"lab": CloudDeclaration(settings=settings, make=lambda: as_driver(pooled))}
    journal = SqlJournal.sqlite(tmp_path / "journal.db")
    made = Engine(DesiredState(cluster="test", clouds=clouds, groups=(group,)), journal, is_stepped=True)
    provider = EngineProvider(made)
    await provider.start()
    await turns(made)
    yield made
    await made.close()


async def turns(engine: Engine, count: int = 3) -> None:
    for _ in range(count):
        await engine.turn()


async def adopted(engine: Engine) -> None:
    result = await adoption.adopt(engine, "g", ["500"], is_dry_run=False)
    assert [(item.refused, item.note) for item in result.items] == [("", "")]
    await turns(engine)
    assert engine.fleet.machines["worker"].state is State.RUNNING


async def test_a_vmid_that_is_used_again_is_not_ours_to_delete(
    fake: FakeProxmox, pooled: ProxmoxDriver, engine: Engine
) -> None:
    """Proxmox hands out the lowest free number: the machine that has it now is somebody's, even under the same name."""
    await adopted(engine)
    del fake.cluster.guests[500]
    await turns(engine)
    assert engine.fleet.machines["worker"].state is State.GONE
    put(fake)
    await asyncio.to_thread(soon, lambda: any(one.name for one in pooled.list()), "its name is told")
    await turns(engine, 6)
    assert "worker" in fake.cluster.alive()
    assert [e.kind for e in await engine.journal.events(EventQuery(kinds=("returned",)))] == []
    assert len(await engine.journal.events(EventQuery(kinds=("unproven",)))) == 1


async def test_a_vmid_that_changes_hands_between_two_lists_is_not_deleted(fake: FakeProxmox, engine: Engine) -> None:
    """No list shows that it was gone, but the mark that adoption set is gone with it."""
    await adopted(engine)
    put(fake)
    await turns(engine)
    record = engine.fleet.machines["worker"]
    await EngineProvider(engine).delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])
    await turns(engine, 6)
    assert "worker" in fake.cluster.alive()


async def test_an_adopted_machine_is_deleted_by_its_mark(fake: FakeProxmox, engine: Engine) -> None:
    await adopted(engine)
    record = engine.fleet.machines["worker"]
    await EngineProvider(engine).delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])
    await turns(engine, 6)
    assert "worker" not in fake.cluster.alive()


async def test_release_takes_the_marks_off_again(fake: FakeProxmox, engine: Engine) -> None:
    await adopted(engine)
    assert TAG_CLUSTER_ID in fake.cluster.guests[500].config["tags"]
    await release.release(engine, ["worker"], is_dry_run=False)
    assert "tags" not in fake.cluster.guests[500].config


async def test_marks_that_proxmox_refuses_are_reported(
    engine: Engine, pooled: ProxmoxDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CloudgraftError("the user may not change tags")

    monkeypatch.setattr(pooled._machines, "mark", refuse)
    result = await adoption.adopt(engine, "g", ["500"], is_dry_run=False)
    assert [item.note for item in result.items] == ["its cloud did not take our marks: the user may not change tags"]
    assert len(await engine.journal.events(EventQuery(kinds=("unmarked",)))) == 1
