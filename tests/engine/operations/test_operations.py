"""What an operator may do: pause, adopt, release, delete. Each survives a restart, and none does more than was said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.engine.groups.desired import GroupDeclaration
from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.groups.templates import TemplateDeclaration
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_GROUP
from cloudgraft.engine.operations import adoption, pauses, release
from cloudgraft.engine.operations import orphan_deletion as disposal
from cloudgraft.engine.operations.bulk_operations import Result
from cloudgraft.engine.reporting.findings import FindingKind, all_findings
from cloudgraft.sdk.driver import Driver, DriverTraits, Machine, MachineSpec, Ownership
from cloudgraft.sdk.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutOfStockError,
    PreconditionError,
    UnavailableError,
)
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import Order, SimMachine
from cloudgraft.store.journal import EventQuery
from cloudgraft.store.records import MachineRecord, Presence, Scope, State
from tests.engine.engine_rig import Rig, group


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    await made.start()
    yield made
    await made.engine.close()


def stranger(rig: Rig, name: str, **tags: str) -> SimMachine:
    """A machine that somebody else made."""
    machine, _ = rig.cloud.create(Order(name=name, settings=MachineSettings(shape="small"), tags=tags))
    return machine


def lost(rig: Rig, name: str = "lost", group_id: str = "g") -> SimMachine:
    """A machine with our marks that the journal does not have."""
    tags = {TAG_CLUSTER_ID: rig.engine.identity.cluster_id, TAG_GROUP: group_id}
    return stranger(rig, name, **tags)


async def grown(rig: Rig, count: int = 1) -> list[MachineRecord]:
    await rig.provider.increase_size("g", count)
    await rig.settle(5)
    return rig.records(State.RUNNING)


async def kinds(rig: Rig, **query: str) -> list[str]:
    return [event.kind for event in await rig.engine.journal.events(EventQuery(**query))]  # type: ignore[arg-type]


async def found(rig: Rig) -> dict[str, FindingKind]:
    return {finding.machine_id: finding.kind for finding in await all_findings(rig.engine)}


def refused(result: Result) -> list[str]:
    return [item.refused for item in result.items if item.refused]


def node(record: MachineRecord | SimMachine) -> NodeRef:
    return NodeRef(name="n", provider_id=record.provider_id)


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


# -- orphans -----------------------------------------------------------------------------------------------------------


async def test_every_kind_of_orphan_is_found(rig: Rig) -> None:
    running, going, vanishing = await grown(rig, 3)
    unknown, unmarked = lost(rig), stranger(rig, f"{rig.engine.identity.prefix}x")
    stranger(rig, "of no concern")
    rig.cloud.lose_tags(running.machine_id)
    rig.cloud.set_chaos(Chaos(ignores_delete=Odds(chance=1.0)))
    await rig.provider.delete_nodes("g", [node(going)])
    await rig.settle(10, seconds=120)
    rig.cloud.vanish(vanishing.machine_id)
    await rig.turn(10)
    assert await found(rig) == {
        unknown.machine_id: FindingKind.UNKNOWN,
        unmarked.machine_id: FindingKind.UNMARKED,
        running.machine_id: FindingKind.UNPROVEN,
        going.machine_id: FindingKind.STUCK,
        vanishing.machine_id: FindingKind.MISSING,
    }


async def test_orphans_are_adopted_into_the_group_they_were_made_for(rig: Rig) -> None:
    machine = lost(rig)
    await rig.settle(4)
    plan = await adoption.adopt_orphans(rig.engine, everything=True)
    assert [(item.group, item.refused) for item in plan.items] == [("g", "")]
    await adoption.adopt_orphans(rig.engine, everything=True, is_dry_run=False)
    await rig.settle(2)
    assert [i.id for i in await rig.shown()] == [machine.provider_id]
    assert await found(rig) == {}


async def test_an_orphan_of_no_group_needs_to_be_told_one(rig: Rig) -> None:
    machine = stranger(rig, f"{rig.engine.identity.prefix}x")
    await rig.settle(4)
    assert "say it with --group" in refused(await adoption.adopt_orphans(rig.engine, [machine.machine_id]))[0]
    result = await adoption.adopt_orphans(rig.engine, [machine.machine_id], group="g", is_dry_run=False)
    assert not refused(result)
    await rig.settle(2)
    assert [(r.is_adopted, r.state) for r in rig.records()] == [(True, State.RUNNING)]


async def test_a_machine_that_lost_its_marks_is_deleted_once_an_operator_says_that_it_is_ours(rig: Rig) -> None:
    (machine,) = await grown(rig)
    rig.cloud.lose_tags(machine.machine_id)
    await rig.turn(10)
    await rig.provider.delete_nodes("g", [node(machine)])
    await rig.settle(5)
    assert rig.alive() == [machine.name]
    assert "unproven" in await kinds(rig, machine=machine.name)
    await rig.restart()
    assert await found(rig) == {machine.machine_id: FindingKind.UNPROVEN}
    result = await adoption.adopt_orphans(rig.engine, [machine.machine_id], is_dry_run=False)
    assert not refused(result)
    await rig.settle(5)
    assert (rig.alive(), await rig.states()) == ([], [])


async def test_an_orphan_is_deleted_by_an_operators_word_and_only_then(rig: Rig) -> None:
    machine = lost(rig)
    await rig.settle(4)
    plan = await disposal.delete_orphans(rig.engine, [machine.machine_id])
    assert ([item.refused for item in plan.items], rig.alive()) == ([""], ["lost"])
    result = await disposal.delete_orphans(rig.engine, [machine.machine_id], is_dry_run=False)
    assert [item.note for item in result.items] == ["its cloud is deleting it"]
    await rig.settle(2)
    assert (rig.alive(), await found(rig)) == ([], {})
    assert "orphan_deleted" in await kinds(rig, cloud="sim")


async def test_law_4_what_does_not_prove_to_be_ours_is_deleted_only_by_force_and_by_name(rig: Rig) -> None:
    (ours,) = await grown(rig)
    unmarked, foreign = stranger(rig, f"{rig.engine.identity.prefix}x"), stranger(rig, "foreign")
    await rig.settle(4)
    ids = [unmarked.machine_id, foreign.machine_id, ours.machine_id]
    result = await disposal.delete_orphans(rig.engine, ids, is_dry_run=False)
    assert [reason.split(";")[0].split(":")[0] for reason in refused(result)] == [
        "it does not show our marks",
        "no orphan has this id",
        f"it is not an orphan, but {ours.name} of group g",
    ]
    assert len(rig.alive()) == 3
    forced = await disposal.delete_orphans(rig.engine, ids, force=True, is_dry_run=False)
    assert [bool(item.refused) for item in forced.items] == [False, True, True]
    await rig.settle(2)
    assert rig.alive() == sorted(["foreign", ours.name])


async def test_a_cloud_that_refuses_to_delete_an_orphan_is_quoted(rig: Rig) -> None:
    machine = lost(rig)
    await rig.settle(4)
    rig.cloud.set_chaos(Chaos(delete=Faults(unavailable=Odds(next=1))))
    result = await disposal.delete_orphans(rig.engine, [machine.machine_id], is_dry_run=False)
    assert len(refused(result)) == 1
    assert not refused(await disposal.delete_orphans(rig.engine, [machine.machine_id], is_dry_run=False))


async def test_the_policy_deletes_orphans_that_stay_and_leaves_released_ones_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings=EngineSettings(delete_orphans=True))
    await rig.start()
    (machine,) = await grown(rig)
    await release.release(rig.engine, [machine.name], is_dry_run=False)
    unmarked = stranger(rig, f"{rig.engine.identity.prefix}x")
    lost(rig)
    await rig.turn(10)
    await rig.settle(5, seconds=600)
    assert len(rig.alive()) == 3
    await pauses.pause(rig.engine, Scope.GROUP, "g")
    await rig.settle(3, seconds=600)
    assert len(rig.alive()) == 3
    await pauses.resume(rig.engine, Scope.GROUP, "g")
    await rig.settle(2, seconds=600)
    assert rig.alive() == sorted([machine.name, unmarked.name])
    assert (await kinds(rig, cloud="sim")).count("orphan_deleted") == 1
    await rig.engine.close()


async def test_without_the_policy_orphans_are_only_told_of(rig: Rig) -> None:
    lost(rig)
    await rig.settle(5, seconds=3600)
    assert rig.alive() == ["lost"]
    assert (await kinds(rig, cloud="sim")).count("orphan") == 1


async def test_a_lost_journal_and_a_double_do_not_keep_each_other_from_being_settled(rig: Rig) -> None:
    """Law 3 and law 11: two machines of one name are adopted as one, and then one of them is deleted."""
    identity = rig.engine.identity
    tags = {TAG_CLUSTER_ID: identity.cluster_id, TAG_GROUP: "g"}
    await rig.engine.close()
    for path in rig.directory.glob("journal.db*"):
        if not path.name.endswith(".cluster-id"):
            path.unlink()
    for _ in range(2):
        stranger(rig, f"{identity.prefix}double", **tags)
    rig.engine = rig.make()
    rig.provider = type(rig.provider)(rig.engine)
    await rig.start()
    await rig.settle(10)
    assert len(rig.alive()) == len(rig.records(State.RUNNING)) == 1


async def test_a_process_that_does_not_lead_does_nothing_for_an_operator(tmp_path: Path) -> None:
    engine = Rig(tmp_path).engine
    calls = [
        pauses.pause(engine, Scope.GROUP, "g"),
        pauses.resume(engine, Scope.GROUP, "g"),
        adoption.adopt(engine, "g", ["1"]),
        adoption.adopt_orphans(engine, ["1"]),
        release.release(engine, ["1"]),
        release.release_group(engine, "g"),
        disposal.delete_orphans(engine, ["1"]),
    ]
    for call in calls:
        with pytest.raises(UnavailableError):
            await call
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
