"""Clouds that do not show what they have: nothing is deleted that nobody gave up, and nothing is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cloudgraft.sdk.driver import DriverTraits, Machine, MachineSpec, Ownership
from cloudgraft.sdk.types import NodeRef
from cloudgraft.store.records import State
from tests.engine.scripted_cloud import Cloud, desired_state, group, lose_journal, stepped


async def test_a_running_machine_that_its_cloud_did_not_show_for_a_while_is_taken_back_and_not_deleted(
    tmp_path: Path,
) -> None:
    """Law 4: nobody had asked for its deletion, and there are pods on it."""
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 2)
        await case.turns()
        before = await case.provider.instances("g")
        cloud.is_blind = True
        await case.turns()
        assert await case.provider.target_size("g") == 0, "law 5: two complete lists"
        cloud.is_blind = False
        await case.turns()
        assert {i.id for i in await case.provider.instances("g")} == {i.id for i in before}
        assert await case.states() == ["RUNNING"] * 2
        assert await case.provider.target_size("g") == 2
        assert cloud.deleted == []


async def test_what_the_autoscaler_deleted_while_its_cloud_did_not_show_it_is_deleted_when_it_does(
    tmp_path: Path,
) -> None:
    """R56: the call is OK, and it is the autoscaler's word."""
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (shown,) = await case.provider.instances("g")
        cloud.is_blind = True
        await case.turns()
        for _ in range(2):
            await case.provider.delete_nodes("g", [NodeRef(name="node", provider_id=shown.id)])
        assert await case.provider.target_size("g") == 0
        cloud.is_blind = False
        await case.turns()
        assert cloud.deleted == ["id-0"]
        assert await case.provider.instances("g") == ()


async def test_nothing_is_remembered_of_a_machine_that_turned_up_again_and_went(tmp_path: Path) -> None:
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (machine,) = cloud.machines.values()
        await case.provider.delete_nodes("g", [NodeRef(name=machine.name, provider_id=machine.provider_id or "")])
        await case.turns()
        cloud.machines[machine.machine_id] = machine
        await case.turns()
        assert cloud.deleted == ["id-0", "id-0"]
        assert case.engine.workers["a"].observer.peek(machine.name) is None


async def test_a_deletion_is_not_repeated_before_a_list_has_shown_that_the_machine_is_still_there(
    tmp_path: Path,
) -> None:
    """Some clouds give an id away again at once: by then it may be another machine's."""
    cloud = Cloud()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (machine,) = cloud.machines.values()
        await case.provider.delete_nodes("g", [NodeRef(name=machine.name, provider_id=machine.provider_id or "")])
        worker = case.engine.workers["a"]
        for _ in range(5):
            await worker.act()
            await worker.caller.settled()
            case.clock.advance(120)
            worker.nudge()
        assert cloud.deleted == ["id-0"]
        cloud.machines["id-0"] = machine  # it ignored that
        await case.turns(1)
        assert cloud.deleted == ["id-0", "id-0"]


async def test_a_cloud_that_answers_with_a_machine_that_is_there_already_has_made_none(tmp_path: Path) -> None:
    """Law 4: what was asked for in vain is given up without touching the machine that somebody runs on."""

    class Truncating(Cloud):
        async def create(self, spec: MachineSpec) -> Machine:
            return next(iter(self.machines.values()), None) or await super().create(spec)

    cloud = Truncating()
    async with stepped(tmp_path, desired_state({"a": cloud}, group())) as case:
        await case.provider.increase_size("g", 1)
        await case.turns()
        (first,) = await case.provider.instances("g")
        await case.provider.increase_size("g", 1)
        await case.engine.workers["a"].act()
        await case.engine.workers["a"].caller.settled()
        await case.engine.workers["a"].act()
        (second,) = [one for one in await case.provider.instances("g") if one.id != first.id]
        await case.provider.delete_nodes("g", [NodeRef(name=second.id, provider_id=second.id)])
        await case.turns(30, 60)
        assert cloud.deleted == []
        assert await case.provider.instances("g") == (first,)


async def test_law_11_names_alone_lead_machines_back_into_their_groups(tmp_path: Path) -> None:
    """The first list after a lost journal comes before the groups are known, and names cannot be read yet."""
    cloud = Cloud(DriverTraits(ownership=Ownership.NAME))
    cloud.shown = lambda machine: replace(machine, tags={})
    plan = desired_state({"a": cloud}, group())
    async with stepped(tmp_path, plan) as case:
        names = await case.grow(3)
    lose_journal(tmp_path)
    async with stepped(tmp_path, plan) as case:
        await case.turns()
        assert sorted(record.name for record in case.machines(State.RUNNING)) == sorted(names)
    assert len(cloud.machines) == 3
