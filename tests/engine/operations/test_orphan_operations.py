"""Orphans: found, adopted, and deleted by an operator or by the policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.engine.machines.identity import TAG_CLUSTER_ID, TAG_GROUP
from cloudgraft.engine.operations import adoption, pauses, release
from cloudgraft.engine.operations import orphan_deletion as disposal
from cloudgraft.engine.reporting.findings import FindingKind
from cloudgraft.sdk.errors import (
    UnavailableError,
)
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.store.records import Scope, State
from tests.engine.engine_rig import Rig
from tests.engine.operations.operators import found, grown, kinds, lost, node, refused, stranger


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
