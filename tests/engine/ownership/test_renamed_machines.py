"""Machines that somebody renamed in their cloud, or copied with all their marks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.fleet import Fleet
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.ownership.orphans import known_names
from cloudgraft.engine.ownership.orphans import renamed as others
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency, Machine, MachineSpec, Ownership, PartialList
from cloudgraft.sdk.errors import DeadlineError, OutOfStockError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import Change, MachineRecord, Presence, State
from tests.drivers.router.routed import Place, router
from tests.engine.makers import IDENTITY, NAME, a_machine, a_record
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, lose_journal, stepped

SWEPT = EngineSettings(delete_orphans=True)


def renamed(machine: Machine) -> Machine:
    return replace(machine, name="web-1")


class Forgetful(Cloud):
    """Makes machines, and loses the answers to the first creates."""

    def __init__(self, traits: DriverTraits, *, loses: int = 0) -> None:
        super().__init__(traits)
        self.loses = loses

    async def create(self, spec: MachineSpec) -> Machine:
        machine = await super().create(spec)
        self.loses -= 1
        if self.loses >= 0:
            raise DeadlineError("no answer")
        return machine


async def test_a_machine_whose_answer_was_lost_and_that_was_renamed_is_not_made_twice(tmp_path: Path) -> None:
    """Law 3."""
    cloud = Forgetful(DriverTraits(idempotency=Idempotency.NONE), loses=1)
    cloud.shown = renamed
    async with stepped(tmp_path, desired_state({"a": cloud}, group(), settings=SWEPT)) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(10, 60)
        assert await case.states() == ["RUNNING"]
        await case.turns(4, 2000)
        assert (len(cloud.machines), cloud.deleted) == (1, [])
        await delete_all(case)
        assert cloud.deleted == ["id-0"]


async def test_a_machine_that_was_renamed_before_the_journal_got_lost_may_be_renamed_again(tmp_path: Path) -> None:
    """Law 11."""
    cloud = Cloud()
    plan = desired_state({"a": cloud}, group(), settings=SWEPT)
    async with stepped(tmp_path, plan) as case:
        await case.grow()
    lose_journal(tmp_path)
    cloud.shown = renamed
    async with stepped(tmp_path, plan) as case:
        await case.turns(2)
        assert await case.states() == ["RUNNING"]
        cloud.shown = lambda machine: replace(machine, name="web-2")
        await case.turns(4, 2000)
        assert await case.states() == ["RUNNING"]
        assert cloud.deleted == []


async def test_a_machine_of_a_router_that_was_renamed_is_no_orphan_of_its_cloud(tmp_path: Path) -> None:
    """Law 4: else the policy for orphans would delete it under the router's hands."""
    rack = Place()
    routed = group(cloud="any", machine={"shape": "any"}, template=TemplateDeclaration())
    plan = desired_state({"rack": rack, "any": router({"rack": rack})}, routed, group("h", "rack"), settings=SWEPT)
    async with stepped(tmp_path, plan) as case:
        await case.grow()
        rack.machines = {id_: renamed(machine) for id_, machine in rack.machines.items()}
        await case.turns(4, 2000)
        assert case.engine.workers["rack"].observer.orphans == []
        assert rack.deleted == []
        assert await case.states() == ["RUNNING"]


async def test_a_machine_of_a_mixed_router_that_was_renamed_is_deleted_when_it_has_its_name_again(
    tmp_path: Path,
) -> None:
    """Its clouds know machines in different ways, so that the name is the proof: law 4 before all else."""
    rack, burst = Place(DriverTraits(ownership=Ownership.INVENTORY)), Place(DriverTraits(ownership=Ownership.TAGS))
    rack.refuses = OutOfStockError("all in use")
    routed = group(cloud="any", machine={"shape": "any"}, template=TemplateDeclaration())
    places: dict[str, Driver] = {"rack": rack, "burst": burst}
    plan = desired_state({**places, "any": router(places)}, routed, settings=SWEPT)
    async with stepped(tmp_path, plan) as case:
        (name,) = await case.grow()
        burst.machines = {id_: renamed(machine) for id_, machine in burst.machines.items()}
        await case.turns(4, 2000)
        assert await case.states() == ["RUNNING"]
        await delete_all(case)
        assert (burst.deleted, len(await case.events("unproven"))) == ([], 1)
        burst.machines = {id_: replace(machine, name=name) for id_, machine in burst.machines.items()}
        await case.turns(4)
        assert burst.deleted == ["id-0"]


async def test_a_copy_with_all_marks_is_told_of_and_outlives_what_it_was_made_from(tmp_path: Path) -> None:
    """Law 4: it is not the same intent's, whatever its marks say."""
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.grow()
        (original,) = cloud.machines.values()
        cloud.machines["copy"] = replace(original, machine_id="copy", name="web-1", provider_id="cloud://copy")
        await case.turns(3)
        assert [orphan.machine.machine_id for orphan in case.engine.workers["a"].observer.orphans] == ["copy"]
        await delete_all(case)
        assert (cloud.deleted, list(cloud.machines)) == (["id-0"], ["copy"])


async def delete_all(case: Case) -> None:
    await case.provider.delete_nodes(
        "g", [NodeRef(name="n", provider_id=i.id) for i in await case.provider.instances("g")]
    )
    await case.turns(4)


# -- the names alone ---------------------------------------------------------------------------------------------------


def names(
    *machines: Machine, record: MachineRecord | None = None, ownership: Ownership = Ownership.TAGS, cloud: str = "sim"
) -> list[str]:
    fleet = Fleet()
    if record is not None:
        fleet.apply(Change(machines=(record,)))
    return [machine.name for machine in known_names(cloud, machines, others(machines, IDENTITY, ownership), fleet)]


def other(machine_id: str = "m-1", name: str = "web-1", **changes: Any) -> Machine:
    return replace(a_machine(machine_id), name=name, **changes)


OPEN = a_record(state=State.CREATING, presence=Presence.UNKNOWN)
KNOWN = a_record(state=State.RUNNING, presence=Presence.PRESENT)
OF_A_ROUTER = replace(KNOWN, cloud="any", machine_id="sim/m-1")


@pytest.mark.parametrize("record", [None, OPEN, OF_A_ROUTER, replace(OPEN, cloud="any")])
def test_a_machine_that_is_known_by_its_name_only_has_the_one_of_its_marks(record: MachineRecord | None) -> None:
    assert names(other(), record=record) == [NAME]


def test_a_machine_that_is_known_by_its_id_is_shown_as_it_is() -> None:
    """Its driver gets it back as it was listed."""
    assert names(other(), record=KNOWN) == ["web-1"]


def test_a_machine_that_turns_up_again_is_known_by_its_name() -> None:
    assert names(other(), record=a_record(state=State.GONE, machine_id="m-1")) == [NAME]


@pytest.mark.parametrize("record", [KNOWN, replace(OF_A_ROUTER, machine_id="other/m-1")])
def test_what_is_another_machine_than_the_journals_has_its_own_name(record: MachineRecord) -> None:
    assert names(other("m-2"), record=record) == ["web-1"]


def test_of_two_machines_with_the_same_marks_the_one_of_that_name_else_the_older_has_it() -> None:
    young = other("m-2", "web-2", created_at=datetime(2030, 1, 1, tzinfo=UTC))
    assert names(a_machine(), young, record=OPEN) == [NAME, "web-2"]
    assert names(young, other(), record=OPEN) == ["web-2", NAME]
    assert names(other("m-3", created_at=None), young) == ["web-1", NAME]


def test_marks_of_others_and_marks_that_prove_nothing_give_no_name() -> None:
    theirs = {**other().tags, "cloudgraft-cluster-id": "zzzzzzzzzz"}
    assert names(other(tags=theirs)) == ["web-1"]
    assert names(other(tags={"cloudgraft-name": NAME})) == ["web-1"]
    assert names(other(), ownership=Ownership.NAME) == ["web-1"]
    for nonsense in ("", 7, None, "a\0b"):
        assert names(other(tags={**other().tags, "cloudgraft-name": nonsense})) == ["web-1"]


def test_a_list_that_is_not_whole_stays_so() -> None:
    given = PartialList([other()], complete_for=["m-"], is_whole=False)
    found = known_names("sim", given, others(given, IDENTITY, Ownership.TAGS), Fleet())
    assert isinstance(found, PartialList)
    assert ([m.name for m in found], found.complete_for, found.is_whole) == ([NAME], ("m-",), False)
