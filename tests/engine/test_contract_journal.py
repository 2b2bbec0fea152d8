"""Restarts and lost journals: T9 and law 11; and law 4 towards a cluster that has our name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.machines.identity import Identity
from cloudgraft.sdk.driver import Idempotency, MachineState
from cloudgraft.sdk.errors import UnavailableError
from cloudgraft.sdk.types import InstanceState
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import State
from tests.engine.engine_rig import Rig, fake, group, real, running

OTHER = Identity("test", "zzzzzzzzzz")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(group("g"), group("h")))) as made:
        yield made


def of_another(rig: Rig, count: int = 2) -> list[str]:
    """Machines of a cluster that is called like ours; their ids."""
    names = [OTHER.new_name("g") for _ in range(count)]
    return [rig.place(name, OTHER.tags(name, "g")) for name in names]


def untouched(rig: Rig, ids: list[str]) -> bool:
    entries = {entry.machine_id: entry for entry in rig.cloud.ledger()}
    return all(entries[id_].deletes == 0 and entries[id_].gone_at is None for id_ in ids)


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["restart", "crash"])
async def test_t9_everything_survives_a_restart_between_any_two_calls(rig: Rig, way: str) -> None:
    async def again() -> None:
        groups = await rig.provider.node_groups()
        before = {g.id: (await rig.provider.target_size(g.id), await rig.shown(g.id)) for g in groups}
        if way == "restart":
            await rig.restart()
        else:
            await rig.crash()
            await rig.start()
        assert await rig.provider.node_groups() == groups
        for id_, (target, shown) in before.items():
            assert await rig.provider.target_size(id_) == target
            # The look that a start takes may know more by then: a providerID, a machine that runs or is gone.
            assert len(await rig.shown(id_)) in (len(shown), target)
            for instance in shown:
                found = await rig.provider.node_group_for_node(fake(instance))
                assert found is not None
                assert found.id == id_

    await again()
    await rig.provider.increase_size("g", 3)
    await again()
    await rig.turn()
    await again()
    await rig.settle(5)
    await again()
    assert {i.state for i in await rig.shown()} == {InstanceState.RUNNING}
    rig.chaos(quota=3)
    await rig.provider.increase_size("h", 1)
    await rig.turn()
    await again()
    assert [i.error.code for i in await rig.shown("h") if i.error] == ["quota_exceeded"]
    rig.chaos()
    await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
    await again()
    await rig.settle(5)
    await again()
    assert len(rig.alive()) == 2
    await rig.provider.delete_nodes("h", [fake(i) for i in await rig.shown("h")])
    await again()
    assert await rig.provider.target_size("h") == 0


async def test_r88_a_deletion_that_was_accepted_goes_on_after_a_crash(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    await rig.provider.delete_nodes("g", [real(i) for i in await rig.shown()])
    await rig.crash()
    await rig.start()
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])


async def test_a_gone_machine_is_remembered_after_a_restart_and_purged_in_the_end(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (instance,) = await rig.shown()
    await rig.provider.delete_nodes("g", [real(instance)])
    await rig.settle(5)
    await rig.restart()
    await rig.provider.delete_nodes("g", [real(instance)])  # R56
    rig.clock.advance(timedelta(days=3).total_seconds())
    await rig.engine.clean()
    assert rig.records() == []
    assert [r.name for r in (await rig.engine.journal.load()).machines] == []


# -- a lost journal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 25])
async def test_law_11_a_journal_deleted_under_a_fleet_adopts_all_and_creates_none(tmp_path: Path, lag: int) -> None:
    options = SimulatedOptions(boot_time=timedelta(seconds=30), list_lag=timedelta(seconds=lag))
    async with running(Rig(tmp_path, groups=(group("g"), group("h")), options=options)) as rig:
        await rig.settle(lag)
        await rig.provider.refresh()
        await rig.provider.increase_size("g", 3)
        await rig.provider.increase_size("h", 2)
        await rig.settle(5 + lag)
        await rig.provider.increase_size("g", 1)  # one that the list may not show yet
        await rig.turn()
        names, ids = rig.alive(), {i.id for id_ in ("g", "h") for i in await rig.shown(id_)}
        await rig.wipe()
        await rig.start()
        if lag:
            with pytest.raises(UnavailableError, match="the first list of cloud sim"):
                await rig.provider.node_groups()  # nothing is answered before all was seen
        await rig.settle(3 + lag)
        assert [g.id for g in await rig.provider.node_groups()] == ["g", "h"]
        assert (await rig.provider.target_size("g"), await rig.provider.target_size("h")) == (4, 2)
        await rig.settle(5)
        assert {i.id for id_ in ("g", "h") for i in await rig.shown(id_)} == ids
        assert rig.alive() == names
        assert len(rig.cloud.ledger()) == 6
        (told,) = await rig.events("cloud_ready")
        assert told.cloud == "sim"


async def test_law_11_what_was_adopted_is_deleted_like_any_other(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    await rig.wipe()
    await rig.start()
    await rig.settle(3)
    await rig.provider.delete_nodes("g", [real(i) for i in await rig.shown()])
    await rig.settle(5)
    assert (await rig.shown(), rig.alive()) == ([], [])


async def test_law_11_adopted_machines_count_against_the_guards_at_once(tmp_path: Path) -> None:
    settings = EngineSettings(guards=GuardLimits(max_machines=2))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        await rig.provider.increase_size("g", 2)
        await rig.settle(5)
        await rig.wipe()
        await rig.start()
        await rig.provider.increase_size("g", 1)
        assert [i.error.code for i in await rig.shown() if i.error] == ["guard"]


async def test_law_11_a_double_in_the_cloud_is_one_machine_after_the_journal_was_lost(tmp_path: Path) -> None:
    options = SimulatedOptions(boot_time=timedelta(seconds=5), idempotency=Idempotency.NONE)
    async with running(Rig(tmp_path, options=options)) as rig:
        identity = rig.engine.identity
        name = identity.new_name("g")
        ids = [rig.place(name, identity.tags(name, "g")) for _ in range(2)]
        await rig.wipe()
        await rig.start()
        await rig.settle(10)
        assert await rig.provider.target_size("g") == 1
        assert [m.machine_id for m in rig.cloud.machines()] == [min(ids)], "the older one is kept"
        assert len(await rig.events("double")) == 1


async def test_law_11_machines_on_their_way_out_are_not_taken_in_again(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    rig.chaos(deleteTime=100)
    await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
    await rig.turn()
    await rig.wipe()
    await rig.start()
    await rig.settle(15)
    assert await rig.provider.target_size("g") == 0
    assert rig.cloud.machines() == []


async def test_law_11_nothing_is_created_while_the_cloud_cannot_be_listed(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.provider.increase_size("g", 2)
        await rig.settle(5)
        await rig.wipe()
        rig.chaos(list={"unavailable": 1})
        await rig.start()
        for _ in range(5):
            await rig.turn(10)
            with pytest.raises(UnavailableError, match=r"the first list of cloud sim .*not available"):
                await rig.provider.refresh()
        assert "sim" in rig.engine.left_out()["g"] or "not available" in rig.engine.left_out()["g"]
        rig.chaos()
        await rig.settle(2)
        assert await rig.provider.target_size("g") == 2
        assert len(rig.cloud.ledger()) == 2


async def test_law_11_nothing_is_created_before_the_cloud_was_seen_for_as_long_as_its_lists_may_lag(
    tmp_path: Path,
) -> None:
    options = SimulatedOptions(boot_time=timedelta(seconds=5), list_lag=timedelta(seconds=60))
    async with running(Rig(tmp_path, options=options)) as rig:
        for _ in range(6):
            with pytest.raises(UnavailableError, match="the first list of cloud sim"):
                await rig.provider.increase_size("g", 1)
            await rig.turn(10)
        assert rig.cloud.calls().get("create", 0) == 0
        await rig.provider.increase_size("g", 1)
        await rig.settle(10)
        assert len(rig.alive()) == 1


async def test_after_a_restart_nothing_is_created_before_the_first_list(rig: Rig) -> None:
    """What was created just before may be there already."""
    rig.chaos(create={"rateLimits": 1}, retryAfter=5)
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    await rig.crash()
    rig.chaos(list={"unavailable": 1})
    await rig.start()
    calls = rig.cloud.calls()["create"]
    await rig.settle(5)
    assert rig.cloud.calls()["create"] == calls
    rig.chaos()
    await rig.settle(5)
    assert await rig.states() == ["running"]


async def test_law_11_when_the_cluster_id_is_lost_too_nothing_is_created_until_a_person_says_which_it_is(
    tmp_path: Path,
) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.provider.increase_size("g", 2)
        await rig.settle(5)
        lost = rig.engine.identity.cluster_id
        await rig.wipe(keeps_id=False)
        await rig.start()
        for way in range(3):  # not after a restart either
            await rig.settle(13)
            await rig.provider.refresh()
            assert await rig.provider.node_groups() == ()
            reason = rig.engine.left_out()["g"]
            assert f"clusterId: {lost}" in reason
            assert f"clusterId: {rig.engine.identity.cluster_id}" in reason
            if way == 1:
                await rig.restart()
        assert len(rig.cloud.ledger()) == 2
        rig.cluster_id = lost
        await rig.restart()
        await rig.settle(3)
        assert await rig.provider.target_size("g") == 2
        assert len(rig.cloud.ledger()) == 2


async def test_law_4_a_new_cluster_that_says_who_it_is_starts_beside_another_of_its_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path, cluster_id="this-one")
    theirs = of_another(rig)
    async with running(rig):
        await rig.provider.increase_size("g", 1)
        await rig.settle(5)
        assert await rig.provider.target_size("g") == 1
        assert len(rig.alive()) == 3
        assert untouched(rig, theirs)


# -- other clusters ----------------------------------------------------------------------------------------------------


async def test_law_4_a_cluster_of_the_same_name_in_the_same_cloud_is_never_touched(rig: Rig) -> None:
    theirs = of_another(rig, 3)
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    assert await rig.provider.target_size("g") == 2
    await rig.provider.delete_nodes("g", [real(i) for i in await rig.shown()])
    await rig.settle(30)
    await rig.restart()
    await rig.settle(5)
    assert untouched(rig, theirs)
    assert {m.machine_id for m in rig.cloud.machines()} == set(theirs)
    assert await rig.events("orphan") == [], "they are nobody's orphans"


async def test_law_4_a_machine_of_ours_that_another_cluster_took_the_name_of_is_not_theirs(tmp_path: Path) -> None:
    """Their machine has the very name of our intent, and their marks."""
    options = SimulatedOptions(boot_time=timedelta(seconds=5), idempotency=Idempotency.NONE)
    async with running(Rig(tmp_path, options=options)) as rig:
        rig.chaos(create={"dropped": {"next": 1}})
        await rig.provider.increase_size("g", 1)
        await rig.turn()
        name = rig.records()[0].name
        stolen = rig.place(name, OTHER.tags(name, "g"))
        await rig.settle(70)
        assert rig.records()[0].state is State.FAILED
        await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
        await rig.settle(30)
        assert untouched(rig, [stolen])
        assert rig.cloud.get(stolen).state is MachineState.RUNNING
