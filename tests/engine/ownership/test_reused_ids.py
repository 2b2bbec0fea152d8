"""Ids and names that somebody else's machine has by now: ownership is proved again whenever a machine comes back."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_NAME
from cloudgraft.engine.operations import adoption, release
from cloudgraft.engine.reporting.findings import FindingKind, all_findings
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import OutOfStockError, UnavailableError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import NodeRef
from cloudgraft.simcloud.chaos import Chaos, Odds
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import MachineSettings, SimulatedOptions
from cloudgraft.simcloud.records import Order
from cloudgraft.store.records import Change, MachineRecord, State
from tests.engine.engine_rig import Rig, group, running

THEIRS = {TAG_CLUSTER_ID: "zzzzzzzzzz"}


class Bare(SimulatedDriver):
    """A cloud that keeps no marks of machines that are there, and perhaps tells no creation times either."""

    tells_time = True

    async def mark(self, machine: Machine, tags: object) -> None:
        await Driver.mark(self, machine, {})

    async def list(self) -> Sequence[Machine]:
        machines = await super().list()
        return machines if self.tells_time else [replace(machine, created_at=None) for machine in machines]


class Timeless(Bare):
    tells_time = False


class ReuseRig(Rig):
    """One that can choose how its cloud shows machines."""

    kind: type[SimulatedDriver] = SimulatedDriver

    def driver(self) -> Driver:
        return self.kind.of(self.cloud, waits=False)


@pytest.fixture(params=[SimulatedDriver, Bare, Timeless], ids=["marks", "creation time", "neither"])
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ReuseRig]:
    made = ReuseRig(tmp_path)
    made.kind = request.param
    async with running(made):
        yield made


async def adopted(rig: Rig, name: str = "worker") -> MachineRecord:
    machine_id = rig.place(name, {})
    await rig.settle(4)
    result = await adoption.adopt(rig.engine, "g", [machine_id], is_dry_run=False)
    assert not any(item.refused for item in result.items)
    await rig.settle(2)
    return rig.engine.fleet.machines[name]


def put_again(rig: Rig, record: MachineRecord, **tags: str) -> None:
    """Somebody's machine with the id and the name of one that is gone."""
    order = Order(name=record.name, settings=MachineSettings(shape="small"), tags=tags, machine_id=record.machine_id)
    rig.cloud.create(order)


async def delete(rig: Rig, record: MachineRecord) -> None:
    await rig.provider.delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])


@pytest.mark.parametrize("tags", [{}, THEIRS, {**THEIRS, TAG_NAME: "worker"}], ids=["bare", "theirs", "our name"])
async def test_a_machine_made_again_under_the_id_of_a_gone_one_is_left_alone(rig: Rig, tags: dict[str, str]) -> None:
    record = await adopted(rig)
    await delete(rig, record)
    await rig.settle(6)
    assert rig.engine.fleet.machines["worker"].state is State.GONE
    put_again(rig, record, **tags)
    await rig.settle(6)
    assert rig.alive() == ["worker"]
    assert await rig.events("returned") == []


@pytest.mark.parametrize("tags", [{}, THEIRS], ids=["bare", "theirs"])
async def test_a_lost_machine_is_not_taken_back_in_the_shape_of_another(rig: Rig, tags: dict[str, str]) -> None:
    record = await adopted(rig)
    rig.cloud.vanish(record.machine_id)
    await rig.settle(3)
    put_again(rig, record, **tags)
    await rig.settle(6)
    assert (rig.alive(), await rig.states()) == (["worker"], [])


async def test_what_comes_back_and_is_not_proven_is_reported_and_not_deleted(rig: ReuseRig) -> None:
    """Only one list has missed it: the record is not gone, and the autoscaler deletes it."""
    record = await adopted(rig)
    rig.cloud.vanish(record.machine_id)
    await rig.turn(10)
    put_again(rig, record)
    await rig.settle(4)
    await delete(rig, record)
    await rig.settle(6)
    assert rig.alive() == ["worker"]
    assert [finding.kind for finding in await all_findings(rig.engine)] == [FindingKind.UNPROVEN]
    assert len(await rig.events("unproven")) == 1
    result = await adoption.adopt_orphans(rig.engine, [record.machine_id], is_dry_run=False)
    assert not any(item.refused for item in result.items)
    await rig.settle(6)
    assert (rig.alive(), await rig.states()) == ([], [])


@pytest.mark.parametrize("rig", [SimulatedDriver, Bare], ids=["marks", "creation time"], indirect=True)
async def test_one_that_changed_hands_while_we_were_down_is_left_alone(rig: ReuseRig) -> None:
    """Without either it cannot be told: the how-to says so."""
    record = await adopted(rig)
    await rig.engine.close()
    rig.cloud.vanish(record.machine_id)
    put_again(rig, record)
    rig.clock.advance(60)
    await rig.restart()
    await rig.settle(2)
    await delete(rig, record)
    await rig.settle(6)
    assert rig.alive() == ["worker"]


async def test_an_adopted_machine_that_a_list_missed_is_the_same_by_mark_or_time(rig: ReuseRig) -> None:
    rig.place("other", {})
    record = await adopted(rig)
    rig.cloud.set_chaos(Chaos(short_lists=Odds(next=1)))  # which leaves out every second machine
    await rig.settle(3)
    await delete(rig, record)
    await rig.settle(6)
    assert rig.alive() == (["other", "worker"] if rig.kind is Timeless else ["other"])


async def test_a_machine_adopted_by_an_older_release_gets_its_creation_time(rig: ReuseRig) -> None:
    record = await adopted(rig)
    old = replace(record, created_at=None, is_marked=False, version=record.version + 1)
    await rig.engine.writer.write(lambda: Change(machines=(old,)))
    await rig.restart()
    await rig.settle(2)
    found = rig.engine.fleet.machines["worker"]
    assert (found.created_at is not None) == (rig.kind is not Timeless)
    assert found.is_marked == (rig.kind is SimulatedDriver)


async def test_a_released_machine_that_comes_back_after_two_lists_is_left_alone(rig: ReuseRig) -> None:
    """An operator's word outlives lists that are wrong: it is the same machine, with its marks."""
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (record,) = rig.records()
    await release.release(rig.engine, [record.name], is_dry_run=False)
    shown = rig.cloud.get(record.machine_id)
    rig.cloud.vanish(record.machine_id)
    await rig.settle(4)
    put_again(rig, record, **shown.tags)
    await rig.settle(6)
    assert (rig.alive(), await rig.states()) == ([record.name], [])
    assert [finding.kind for finding in await all_findings(rig.engine)] == [FindingKind.RELEASED]


async def test_marks_of_adoption_are_taken_off_when_it_is_released(rig: ReuseRig) -> None:
    record = await adopted(rig)
    marks = rig.cloud.get(record.machine_id).tags
    assert marks == (rig.engine.identity.tags("worker", "g") if rig.kind is SimulatedDriver else {})
    await release.release(rig.engine, ["worker"], is_dry_run=False)
    assert rig.cloud.get(record.machine_id).tags == {}


async def test_adopted_machines_with_marks_survive_a_lost_journal(rig: ReuseRig) -> None:
    await adopted(rig)
    await rig.wipe()
    await rig.start()
    await rig.settle(3)
    assert await rig.states() == (["running"] if rig.kind is SimulatedDriver else [])


async def test_what_is_marked_for_another_cluster_is_not_adopted_by_any_word(rig: ReuseRig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (record,) = rig.records()
    rig.cloud.mark(record.machine_id, THEIRS)
    await rig.settle(1)
    result = await adoption.adopt_orphans(rig.engine, [record.machine_id], is_dry_run=False)
    assert "another cluster" in result.items[0].refused or "no orphan" in result.items[0].refused
    await delete(rig, record)
    await rig.settle(6)
    assert rig.alive() == [record.name]


async def test_a_cloud_that_does_not_take_the_marks_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise UnavailableError("no tags today")

    monkeypatch.setattr(SimulatedDriver, "mark", refuse)
    async with running(Rig(tmp_path)) as rig:
        machine_id = rig.place("worker", {})
        await rig.settle(4)
        result = await adoption.adopt(rig.engine, "g", [machine_id], is_dry_run=False)
        assert [item.note for item in result.items] == ["its cloud did not take our marks: no tags today"]
        assert len(await rig.events("unmarked")) == 1
        await rig.settle(2)
        assert await rig.states() == ["running"]


async def test_the_operator_is_told_where_nothing_will_prove_it_again(tmp_path: Path) -> None:
    rig = ReuseRig(tmp_path)
    rig.kind = Timeless
    async with running(rig):
        machine_id = rig.place("worker", {})
        await rig.settle(4)
        result = await adoption.adopt(rig.engine, "g", [machine_id], is_dry_run=False)
        assert "keeps no marks and tells no creation time" in result.items[0].note


# -- over HTTP ---------------------------------------------------------------------------------------------------------


class Served(Rig):
    """The cloud is behind a port, as `cloudgraft simcloud` is."""

    url = ""

    def driver(self) -> Driver:
        return SimulatedDriver(SimulatedOptions(url=self.url))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    cloud = SimulatedCloud(SimulatedOptions(boot_time=timedelta(0), delete_time=timedelta(0)))
    server = HttpServer(cloud)
    server.start()
    made = Served(tmp_path)
    made.url, made.cloud = server.url, cloud
    yield made
    server.stop()
    cloud.close()


def _sent(url: str, method: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as answer:
        found: dict[str, object] = json.load(answer)
    return found


async def test_a_machine_that_another_made_again_is_not_deleted_by_the_next_list(served: Served) -> None:
    """Adopted, deleted by somebody, made again under the same id and name for another cluster."""
    machines = f"{served.url}/machines"
    made = _sent(machines, "POST", {"name": "worker", "shape": "small"})
    async with running(served):
        await served.settle(3)
        await adoption.adopt(served.engine, "g", [str(made["machineId"])], is_dry_run=False)
        await served.settle(2)
        assert served.engine.fleet.machines["worker"].is_marked
        _sent(f"{machines}/{made['machineId']}", "DELETE")
        await served.settle(4)
        assert served.engine.fleet.machines["worker"].state is State.GONE
        again = {"name": "worker", "shape": "small", "machineId": made["machineId"], "tags": THEIRS}
        _sent(machines, "POST", again)
        await served.settle(5)
        assert served.alive() == ["worker"]
        assert [entry.deletes for entry in served.cloud.ledger()] == [1, 0]


# -- inventories -------------------------------------------------------------------------------------------------------


class Shelf(Driver):
    """Machines that are ours to touch while they are on the shelf, without marks or times."""

    traits = DriverTraits(ownership=Ownership.INVENTORY)

    def __init__(self) -> None:
        self.machines = {"rack-7": Machine(name="rack-7", machine_id="rack-7", provider_id="shelf://rack-7")}

    async def create(self, spec: MachineSpec) -> Machine:
        raise OutOfStockError(f"nobody puts {spec.name} there")

    async def delete(self, machine: Machine) -> None:
        self.machines.pop(machine.machine_id)

    async def list(self) -> Sequence[Machine]:
        return list(self.machines.values())


async def test_a_host_that_was_deleted_and_set_up_again_by_somebody_is_left_alone(tmp_path: Path) -> None:
    shelf = Shelf()
    groups = (
        group(),
        group(
            "s",
            cloud="shelf",
            machine={},
            template=TemplateDeclaration(capacity={"cpu": Quantity("2"), "memory": Quantity("4Gi")}),
        ),
    )
    async with running(Rig(tmp_path, groups=groups, drivers={"shelf": shelf})) as rig:
        await rig.settle(2)
        await adoption.adopt(rig.engine, "s", ["rack-7"], is_dry_run=False)
        await rig.settle(3)
        host = shelf.machines["rack-7"]
        await rig.provider.delete_nodes("s", [NodeRef(name="n", provider_id="shelf://rack-7")])
        await rig.settle(4)
        assert shelf.machines == {}
        shelf.machines["rack-7"] = host
        await rig.settle(6)
        assert list(shelf.machines) == ["rack-7"]
        assert [finding.kind for finding in await all_findings(rig.engine)] == [FindingKind.UNKNOWN]
