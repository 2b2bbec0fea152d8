"""Configurations that change under machines: clouds that are renamed, removed or shared, groups that move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.sdk.driver import DriverTraits, Machine, MachineState
from cloudgraft.sdk.types import InstanceState, NodeRef
from tests.engine.scripted_cloud import Cloud, desired_state, group, stepped


async def test_a_group_that_moves_to_a_new_cloud_stays_listed_while_that_is_not_ready(tmp_path: Path) -> None:
    """R12: it has machines, and a group that comes and goes costs the autoscaler its memory."""
    old, new = Cloud(), Cloud(DriverTraits(list_delay=timedelta(seconds=60)))
    async with stepped(tmp_path, desired_state({"a": old}, group())) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        case.engine.reconfigure(desired_state({"a": old, "b": new}, group(cloud="b")))
        for _ in range(10):
            await case.provider.refresh()
            assert [g.id for g in await case.provider.node_groups()] == ["g"]
            assert await case.states() == ["RUNNING"] * 2
            await case.turns(1)
        await case.provider.increase_size("g", 1)
        await case.turns()
        assert (len(old.machines), len(new.machines)) == (2, 1)


async def test_the_machines_of_a_cloud_that_is_renamed_keep_their_records(tmp_path: Path) -> None:
    cloud, other = Cloud(), Cloud()
    other.machines["id-0"] = Machine(name="somebody", machine_id="id-0")
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        before = await case.provider.instances("g")
        case.engine.reconfigure(desired_state({"b": cloud, "c": other}, group(cloud="b")))
        for _ in range(5):
            await case.provider.refresh()
            assert await case.provider.instances("g") == before
            await case.turns(1)
        assert {record.cloud for record in case.engine.fleet.machines.values()} == {"b"}
        assert case.engine.fleet.in_cloud("a") == {}
        await case.provider.delete_nodes("g", [NodeRef(name="n", provider_id=before[0].id)])
        await case.turns()
        assert len(cloud.deleted) == 1
        assert other.deleted == []


async def test_machines_of_a_cloud_that_was_removed_still_count_against_the_guards(tmp_path: Path) -> None:
    """Law 10, also after a restart: they cost as before."""
    limits = EngineSettings(guards=GuardLimits(max_machines=2))
    old, new = Cloud(), Cloud()
    async with stepped(tmp_path, desired_state({"a": old}, group(), settings=limits)) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
    plan = desired_state({"b": new}, group("h", "b"), settings=limits)
    async with stepped(tmp_path, plan) as case:
        await case.turns(2)
        await case.provider.refresh()
        await case.provider.increase_size("h", 1)
        (refused,) = await case.provider.instances("h")
        assert refused.error is not None
        assert refused.error.code == "guard"
        assert refused.state is InstanceState.CREATING


async def test_an_account_that_two_clouds_show_has_no_orphans_in_either(tmp_path: Path) -> None:
    """Law 4: else the policy for orphans would delete the machines of the other one."""

    class Window(Cloud):
        async def list(self) -> Sequence[Machine]:
            return await account.list()

        async def delete(self, machine: Machine) -> None:
            await account.delete(machine)

    account = Cloud()
    settings = EngineSettings(delete_orphans=True)
    plan = desired_state({"a": account, "b": Window()}, group(), group("h", "b"), settings=settings)
    async with stepped(tmp_path, plan) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        await case.turns(4, 1000)
        assert case.engine.workers["b"].observer.orphans == []
        assert account.deleted == []
        assert await case.states() == ["RUNNING"] * 2


async def test_the_place_of_a_machine_in_a_group_that_moved_is_not_filled_from_the_old_cloud(tmp_path: Path) -> None:
    old, new = Cloud(DriverTraits(provider_id="a://{name}")), Cloud()
    async with stepped(tmp_path, desired_state({"a": old}, group(min_size=1))) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        case.engine.reconfigure(desired_state({"a": old, "b": new}, group(cloud="b", min_size=1)))
        await case.provider.refresh()
        await case.turns(2)
        await case.provider.refresh()
        old.shown = lambda machine: replace(machine, state=MachineState.STOPPED)
        await case.turns(5, 200)
        assert not [r for r in case.engine.fleet.machines.values() if r.cloud == "b" and r.provider_id[:4] == "a://"]
