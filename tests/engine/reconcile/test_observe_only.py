"""`observeOnly`: everything is listed, matched, decided and reported, and nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.engine.groups.desired import DesiredState
from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.operations.orphan_deletion import delete_orphans
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.sdk.driver import Machine, MachineState
from cloudgraft.sdk.errors import PreconditionError
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import State
from tests.engine.clusters import MemoryCluster
from tests.engine.scripted_cloud import Case, Cloud, desired_state, group, lose_journal, stepped


def observing(
    cloud: Cloud, *, settings: EngineSettings | None = None, is_on: bool = True, **changes: Any
) -> DesiredState:
    plan = desired_state({"a": cloud}, group(**changes), settings=settings)
    declared = plan.clouds["a"]
    return replace(plan, clouds={"a": replace(declared, settings=replace(declared.settings, observe_only=is_on))})


async def switch(case: Case, cloud: Cloud, *, is_on: bool, settings: EngineSettings | None = None) -> None:
    """A reload, and the Refresh that applies it."""
    case.engine.reconfigure(observing(cloud, is_on=is_on, settings=settings))
    await case.provider.refresh()


class Counting(Cloud):
    """Remembers whether it was asked to change anything."""

    creates = 0

    async def create(self, spec: object) -> Machine:
        self.creates += 1
        return await super().create(spec)  # type: ignore[arg-type]  # what it is given


async def test_orders_of_the_autoscaler_are_refused_and_change_nothing(tmp_path: Path) -> None:
    cloud = Counting()
    async with stepped(tmp_path, observing(cloud, is_on=False)) as case:
        (name,) = await case.grow()
        (record,) = case.machines(State.RUNNING)
        await switch(case, cloud, is_on=True)
        before, provider = case.machines(), case.provider
        for _ in range(3):
            with pytest.raises(PreconditionError, match=r"observeOnly of cloud a is set.*create 2 more in group g"):
                await provider.increase_size("g", 2)
            with pytest.raises(PreconditionError, match=f"delete {name} in group g"):
                await provider.delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])
            await case.turns(1)
        assert case.machines() == before
        assert (cloud.creates, cloud.deleted) == (1, [])
        assert len(await case.events("observed")) == 2, "once for each order, not for each call"
        (shown,) = await case.provider.node_groups()
        assert (shown.min_size, shown.max_size) == (1, 10), "R54: a node that stays must not be drained"
        await switch(case, cloud, is_on=False)
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=record.provider_id)])
        await case.turns(2)
        assert cloud.deleted == ["id-0"]
        assert (await case.provider.node_groups())[0].min_size == 0


async def test_a_machine_that_would_fail_is_reported_once_and_deleted_only_later(tmp_path: Path) -> None:
    cloud = Counting()
    async with stepped(tmp_path, observing(cloud, is_on=False)) as case:
        await case.provider.increase_size("g", 1)
        await case.turns(1, 0)
        assert case.records(State.BOOTING) == 1
        await switch(case, cloud, is_on=True)
        cloud.shown = lambda machine: replace(machine, state=MachineState.FAILED, reason="no disk")
        await case.turns(300, 60)
        assert (case.records(State.BOOTING), cloud.deleted) == (1, []), "what is there stays as it is"
        (told,) = await case.events("observed")
        assert "cloudgraft would give it up and delete it: no disk" in told
        (machine,) = (await make_report(case.engine, group="g")).groups[0].machines
        assert "observeOnly" in machine.trouble
        await switch(case, cloud, is_on=False)
        await case.turns(2)
        assert cloud.deleted == ["id-0"]


async def test_doubles_broken_machines_and_orphans_are_only_reported(tmp_path: Path) -> None:
    cloud, settings = Counting(), EngineSettings(delete_orphans=True)
    async with stepped(tmp_path, observing(cloud, is_on=False, settings=settings, min_size=1)) as case:
        await case.grow(2)
        case.engine.reconfigure(observing(cloud, settings=settings, min_size=1))
        await case.provider.refresh()
        first, second = cloud.machines.values()
        identity, name = case.engine.identity, case.engine.identity.new_name("g")
        cloud.machines["twin"] = replace(first, machine_id="twin")
        cloud.machines["orphan"] = Machine(name=name, machine_id="orphan", tags=identity.tags(name, "g"))
        cloud.shown = lambda machine: (
            replace(machine, state=MachineState.STOPPED) if machine.machine_id == second.machine_id else machine
        )
        await case.turns(30, 300)
        assert (cloud.creates, cloud.deleted) == (2, [])
        told = await case.events("observed")
        assert sorted(text.partition("would ")[2].partition(":")[0] for text in told) == [
            "delete it",
            "delete machine twin",
            "replace it",
        ]
        result = await delete_orphans(case.engine, ["orphan"], is_dry_run=False)
        assert result.items[0].refused == "observeOnly of cloud a is set: nothing is deleted there"
        assert cloud.deleted == []


async def test_a_machine_below_the_minimum_is_not_bought_again(tmp_path: Path) -> None:
    cloud = Counting()
    async with stepped(tmp_path, observing(cloud, is_on=False, min_size=1)) as case:
        await case.grow()
        case.engine.reconfigure(observing(cloud, min_size=1))
        await case.provider.refresh()
        cloud.machines.clear()
        await case.turns(4)
        assert (case.records(State.GONE), len(case.machines()), cloud.creates) == (1, 1, 1)
        assert any("replace it: its group falls below its minimum" in text for text in await case.events("observed"))


async def test_no_call_that_changes_anything_gets_past_the_caller(tmp_path: Path) -> None:
    """Whatever is decided above it."""
    cloud = Counting()
    async with stepped(tmp_path, observing(cloud, is_on=False)) as case:
        (name,) = await case.grow()
        await switch(case, cloud, is_on=True)
        caller, record = case.engine.workers["a"].caller, case.machines()[0]
        machine = cloud.machines["id-0"]
        with pytest.raises(PreconditionError, match="observeOnly of cloud a is set"):
            await caller.remove(machine)
        prepared: list[str] = []

        async def prepare() -> str:
            prepared.append("a token")
            return ""

        caller.delete(name, machine)
        caller.create(record, prepare)
        await caller.settled()
        assert (cloud.creates, cloud.deleted, prepared) == (1, [], [])


async def test_nodes_of_an_observed_cloud_are_matched_and_left_alone(tmp_path: Path) -> None:
    cloud, cluster = Counting(), MemoryCluster()
    async with stepped(tmp_path, observing(cloud, is_on=False), cluster=cluster) as case:
        (name,) = await case.grow()
        await case.turns(1)
        assert not cluster.claims[name].is_observed
        await switch(case, cloud, is_on=True)
        await case.turns(2)
        assert cluster.claims[name].is_observed


async def test_machines_of_ours_are_taken_in_and_status_says_what_is_observed(tmp_path: Path) -> None:
    cloud = Counting()
    async with stepped(tmp_path, observing(cloud, is_on=False)) as case:
        await case.grow(2)
        identity = case.engine.identity
    lose_journal(tmp_path)
    settings = EngineSettings(create_deadline=timedelta(seconds=30))
    async with stepped(tmp_path, observing(cloud, settings=settings)) as case:
        await case.turns(20, 60)
        assert case.engine.identity.cluster_id == identity.cluster_id
        assert case.records(State.RUNNING) == 2
        report = await make_report(case.engine)
        assert report.clouds[0].observe_only
        assert (cloud.creates, cloud.deleted) == (2, [])
