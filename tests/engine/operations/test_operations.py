"""What an operator may do: pause, adopt, release, delete. Each survives a restart, and none does more than was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.desired import GroupDeclaration
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID
from cloudgraft.engine.operations import adoption, pauses, release
from cloudgraft.engine.operations import orphan_deletion as disposal
from cloudgraft.engine.reporting.findings import FindingKind
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PreconditionError,
)
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.store.records import Presence, Scope, State
from tests.engine.engine_rig import Rig, group
from tests.engine.operations.operators import found, grown, kinds, node, refused, stranger

# -- pause -------------------------------------------------------------------------------------------------------------


async def test_a_paused_group_answers_truthfully_creates_nothing_and_goes_on_when_resumed(rig: Rig) -> None:
    assert await pauses.pause(rig.engine, Scope.GROUP, "g", "the invoice")
    await rig.provider.increase_size("g", 1)
    await rig.settle(3)
    (instance,) = await rig.shown()
    assert (instance.state, instance.error and instance.error.code) == (InstanceState.CREATING, "paused")
    assert "the invoice" in (instance.error.message if instance.error else "")
    assert rig.alive() == []
    assert await pauses.resume(rig.engine, Scope.GROUP, "g")
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert len(rig.alive()) == 1
    assert [kind for kind in await kinds(rig, group="g") if kind in ("paused", "resumed")] == ["paused", "resumed"]


async def test_a_pause_survives_a_restart_and_holds_deletions(rig: Rig) -> None:
    (machine,) = await grown(rig)
    await pauses.pause(rig.engine, Scope.CLOUD, "sim", "maintenance")
    await rig.restart()
    await rig.provider.delete_nodes("g", [node(machine)])
    await rig.settle(3)
    assert (await rig.states(), rig.alive()) == (["deleting"], [machine.name])
    assert await pauses.resume(rig.engine, Scope.CLOUD, "sim")
    await rig.settle(5)
    assert (await rig.states(), rig.alive()) == ([], [])


async def test_pause_and_resume_are_idempotent(rig: Rig) -> None:
    assert not await pauses.resume(rig.engine, Scope.GROUP, "g")
    assert await pauses.pause(rig.engine, Scope.GROUP, "g", "a")
    since = rig.engine.fleet.pauses[Scope.GROUP, "g"].since
    rig.clock.advance(60)
    assert not await pauses.pause(rig.engine, Scope.GROUP, "g")
    assert await pauses.pause(rig.engine, Scope.GROUP, "g", "b")
    pause = rig.engine.fleet.pauses[Scope.GROUP, "g"]
    assert (pause.since, pause.reason) == (since, "b")


@pytest.mark.parametrize(("scope", "name"), [(Scope.GROUP, "sim"), (Scope.CLOUD, "g"), (Scope.GROUP, "")])
async def test_what_is_not_there_cannot_be_paused(rig: Rig, scope: Scope, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"there is no {scope.value}"):
        await pauses.pause(rig.engine, scope, name)
    with pytest.raises(NotFoundError):
        await pauses.resume(rig.engine, scope, name)


# -- adopt -------------------------------------------------------------------------------------------------------------


async def test_machines_of_a_running_cluster_are_adopted_and_can_then_be_deleted_by_the_autoscaler(rig: Rig) -> None:
    old = [stranger(rig, f"worker-{number}") for number in range(2)]
    stranger(rig, "database")
    await rig.settle(4)
    plan = await adoption.adopt(rig.engine, "g", prefix="worker-")
    assert [item.provider_id for item in plan.items] == [machine.provider_id for machine in old]
    assert (plan.is_dry_run, await rig.provider.target_size("g")) == (True, 0)
    done = await adoption.adopt(rig.engine, "g", prefix="worker-", is_dry_run=False)
    assert not refused(done)
    await rig.settle(2)
    assert await rig.states() == ["running", "running"]
    assert {i.id for i in await rig.shown()} == {machine.provider_id for machine in old}
    await rig.restart()
    await rig.settle(2)
    await rig.provider.delete_nodes("g", [node(old[0])])
    await rig.settle(5)
    assert rig.alive() == ["database", "worker-1"]
    assert await kinds(rig, machine="worker-1") == ["state", "adopted", "state"]


async def test_an_adopted_machine_whose_name_another_one_has_too_is_not_mixed_up_with_it(rig: Rig) -> None:
    one, two, other = (stranger(rig, "worker") for _ in range(3))
    await rig.settle(4)
    await adoption.adopt(rig.engine, "g", [one.machine_id, two.machine_id], is_dry_run=False)
    await rig.settle(2)
    assert {r.name for r in rig.records()} == {"worker", two.machine_id}
    await rig.provider.delete_nodes("g", [node(one)])
    await rig.settle(5)
    assert [r.machine_id for r in rig.records() if r.state is not State.GONE] == [two.machine_id]
    assert {m.machine_id for m in rig.cloud.machines()} == {two.machine_id, other.machine_id}


async def test_what_would_fail_or_belongs_to_others_is_not_adopted(rig: Rig) -> None:
    (ours,) = await grown(rig)
    foreign = stranger(rig, "foreign", **{TAG_CLUSTER_ID: "abcdefghij"})
    dead = stranger(rig, "dead")
    await rig.settle(4)
    booting = stranger(rig, "booting")
    rig.cloud.kill(dead.machine_id)
    await rig.turn()
    ids = [foreign.machine_id, dead.machine_id, booting.machine_id, ours.machine_id, "nothing"]
    result = await adoption.adopt(rig.engine, "g", ids, is_dry_run=False)
    assert [reason.split(";")[0] for reason in refused(result)] == [
        "it is marked as a machine of another cluster, with the id abcdefghij",
        "its cloud reports it as failed",
        "its cloud reports it as pending",
        f"it is in the journal already, as {ours.name} of group g",
        "the latest list of cloud sim has no machine with this id",
    ]
    assert await rig.provider.target_size("g") == 1


async def test_adoption_needs_a_group_that_is_there_and_machines_that_are_named(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="there is: g"):
        await adoption.adopt(rig.engine, "h", ["1"])
    for ids, prefix in (([], ""), (["1"], "w")):
        with pytest.raises(InvalidArgumentError, match="say which machines"):
            await adoption.adopt(rig.engine, "g", ids, prefix=prefix)


async def test_adoption_beyond_the_maximum_is_told(rig: Rig) -> None:
    for number in range(11):
        stranger(rig, f"w{number}")
    await rig.settle(4)
    plan = await adoption.adopt(rig.engine, "g", prefix="w")
    assert plan.notes == ["group g would have 11 machines; its maxSize is 10"]


async def test_nothing_is_adopted_while_the_cloud_cannot_be_listed(rig: Rig) -> None:
    machine = stranger(rig, "worker")
    await rig.settle(4)
    rig.cloud.set_chaos(Chaos(list=Faults(unavailable=Odds(chance=1.0))))
    await rig.settle(3)
    with pytest.raises(PreconditionError, match="cannot be used at present"):
        await adoption.adopt(rig.engine, "g", [machine.machine_id])


# -- release -----------------------------------------------------------------------------------------------------------


async def test_a_released_machine_stays_in_its_cloud_and_is_nobodys_also_after_a_restart(rig: Rig) -> None:
    kept, freed = await grown(rig, 2)
    plan = await release.release(rig.engine, [freed.name])
    assert ([item.machine_id for item in plan.items], await rig.provider.target_size("g")) == ([freed.machine_id], 2)
    await release.release(rig.engine, [freed.name], is_dry_run=False)
    assert [i.id for i in await rig.shown()] == [kept.provider_id]
    assert await rig.provider.node_group_for_node(node(freed)) is None
    await rig.settle(5)
    await rig.restart()
    await rig.settle(5)
    assert len(rig.alive()) == 2
    assert await rig.provider.target_size("g") == 1
    assert await found(rig) == {freed.machine_id: FindingKind.RELEASED}
    assert "released" in await kinds(rig, machine=freed.name)


async def test_a_released_machine_is_remembered_for_as_long_as_its_cloud_has_it(rig: Rig) -> None:
    (machine,) = await grown(rig)
    await release.release(rig.engine, [machine.machine_id], is_dry_run=False)
    rig.clock.advance(rig.settings.keep_gone.total_seconds() * 2)
    await rig.engine.clean()
    await rig.restart()
    await rig.settle(3)
    assert [r.presence for r in rig.records()] == [Presence.PRESENT]
    rig.cloud.vanish(machine.machine_id)
    await rig.settle(3)
    assert [r.presence for r in rig.records()] == [Presence.NONE]
    await rig.engine.clean()
    assert len(rig.records()) == 1, "it may show again, and is not to be touched then"
    rig.clock.advance(rig.settings.keep_gone.total_seconds() * 2)
    await rig.engine.clean()
    await rig.restart()
    assert rig.records() == []


async def test_a_released_machine_can_be_taken_back_under_its_name(rig: Rig) -> None:
    (machine,) = await grown(rig)
    await release.release(rig.engine, [machine.name], is_dry_run=False)
    await rig.turn(10)
    result = await adoption.adopt_orphans(rig.engine, [machine.machine_id], is_dry_run=False)
    assert not refused(result)
    await rig.restart()
    await rig.settle(2)
    assert [(r.name, r.state) for r in rig.records()] == [(machine.name, State.RUNNING)]
    await rig.provider.delete_nodes("g", [node(machine)])
    await rig.settle(5)
    assert rig.alive() == []


async def test_a_released_machine_does_not_count_against_the_guards(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings=EngineSettings(guards=GuardLimits(max_machines=1)))
    await rig.start()
    (machine,) = await grown(rig)
    await release.release(rig.engine, [machine.name], is_dry_run=False)
    await rig.turn(10)
    assert len(await grown(rig)) == 1
    assert len(rig.alive()) == 2
    await rig.engine.close()


async def test_a_machine_that_nothing_is_known_of_is_not_released(rig: Rig) -> None:
    rig.cloud.set_chaos(Chaos(create=Faults(dropped=Odds(chance=1.0))))
    await rig.provider.increase_size("g", 1)
    (record,) = rig.records()
    assert "nothing to release" in refused(await release.release(rig.engine, [record.name]))[0]
    await rig.turn()
    assert "it is not known yet" in refused(await release.release(rig.engine, [record.name], is_dry_run=False))[0]
    assert "no machine of this name" in refused(await release.release(rig.engine, ["x"]))[0]
    with pytest.raises(InvalidArgumentError):
        await release.release(rig.engine, [])


async def test_what_is_released_twice_or_gone_is_refused(rig: Rig) -> None:
    first, second = await grown(rig, 2)
    await release.release(rig.engine, [first.name], is_dry_run=False)
    await rig.provider.delete_nodes("g", [node(second)])
    await rig.settle(5)
    result = await release.release(rig.engine, [first.name, second.name], is_dry_run=False)
    assert refused(result) == ["it was released already", "it is gone"]


async def test_a_draining_group_ends_when_it_is_released(rig: Rig) -> None:
    await grown(rig, 2)
    with pytest.raises(PreconditionError, match="is configured"):
        await release.release_group(rig.engine, "g")
    rig.groups = (group("h"),)
    rig.engine.reconfigure(rig.desired_state())
    await rig.provider.refresh()
    plan = await release.release_group(rig.engine, "g")
    assert len(plan.items) == 2
    result = await release.release_group(rig.engine, "g", is_dry_run=False)
    assert not refused(result)
    await rig.provider.refresh()
    assert [g.id for g in await rig.provider.node_groups()] == ["h"]
    await rig.settle(3)
    assert len(rig.alive()) == 2
    with pytest.raises(NotFoundError):
        await release.release_group(rig.engine, "g")


async def test_a_group_of_a_cloud_that_was_removed_can_be_released_whatever_is_known_of_its_machines(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    await rig.start()
    await grown(rig)
    rig.cloud.set_chaos(Chaos(create=Faults(dropped=Odds(chance=1.0))))
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    engine = rig.engine
    without = replace(rig.desired_state(), clouds={}, groups=())
    engine.reconfigure(without)
    await rig.provider.refresh()
    result = await release.release_group(engine, "g", is_dry_run=False)
    assert [(bool(item.machine_id), bool(item.note)) for item in result.items] == [(True, False), (False, True)]
    assert not refused(result)
    await rig.provider.refresh()
    assert list(await rig.provider.node_groups()) == []
    await engine.close()


# -- other clouds ------------------------------------------------------------------------------------------------------


class Shelf(Driver):
    """Machines that somebody put there. All of them are ours to touch."""

    traits = DriverTraits(ownership=Ownership.INVENTORY)

    def __init__(self, *names: str) -> None:
        self.machines = {
            str(number): Machine(name=name, machine_id=str(number), provider_id=f"shelf://{name}-{number}")
            for number, name in enumerate(names)
        }

    async def create(self, spec: MachineSpec) -> Machine:
        raise OutOfStockError(f"nobody puts {spec.name} there")

    async def delete(self, machine: Machine) -> None:
        del self.machines[machine.machine_id]

    async def list(self) -> Sequence[Machine]:
        return list(self.machines.values())


def declared(cloud: str, id_: str) -> GroupDeclaration:
    capacity = {"cpu": Quantity("2"), "memory": Quantity("4Gi")}
    return group(id_, cloud=cloud, machine={}, template=TemplateDeclaration(capacity=capacity))


async def test_in_an_inventory_two_machines_of_one_name_are_two_machines(tmp_path: Path) -> None:
    shelf = Shelf("worker", "worker", "spare")
    settings = EngineSettings(delete_orphans=True)
    rig = Rig(tmp_path, groups=(group(), declared("shelf", "s")), drivers={"shelf": shelf}, settings=settings)
    await rig.start()
    await adoption.adopt(rig.engine, "s", ["0"], is_dry_run=False)
    await rig.settle(5, seconds=3600)
    assert await rig.states("s") == ["running"]
    assert set(shelf.machines) == {"0", "1", "2"}
    await rig.provider.delete_nodes("s", [NodeRef(name="x", provider_id="shelf://worker-0")])
    await rig.settle(5)
    assert (await rig.states("s"), set(shelf.machines)) == ([], {"1", "2"})
    everything = await adoption.adopt_orphans(rig.engine, everything=True, is_dry_run=False)
    assert {reason.split(";")[0] for reason in refused(everything)} == {"it cannot be told which group it was made for"}
    await rig.engine.close()


async def test_ids_that_several_clouds_use_need_the_cloud_to_be_named(tmp_path: Path) -> None:
    shelves = {"left": Shelf("a"), "right": Shelf("b")}
    groups = (group(), declared("left", "l"), declared("right", "r"))
    rig = Rig(tmp_path, groups=groups, drivers=shelves)
    await rig.start()
    await rig.turn()
    adopt = await adoption.adopt_orphans(rig.engine, ["0"], group="l")
    delete = await disposal.delete_orphans(rig.engine, ["0"])
    for result in (adopt, delete):
        assert "say which with --cloud" in refused(result)[0]
    assert not refused(await adoption.adopt_orphans(rig.engine, ["0"], group="l", cloud="left", is_dry_run=False))
    wrong = await adoption.adopt_orphans(rig.engine, ["0"], group="l", cloud="right", is_dry_run=False)
    assert "there is no node group 'l' in cloud right" in refused(wrong)[0]
    assert not refused(await adoption.adopt_orphans(rig.engine, ["0"], group="r", is_dry_run=False))
    assert "use its name: a, b" in refused(await release.release(rig.engine, ["0"]))[0]
    await rig.engine.close()
