"""Machines that die, vanish, ignore their deletion, never boot, or lose their tags."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits, RepairSettings
from cloudgraft.sdk.driver import Driver, Machine
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import InstanceState
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import MachineRecord, Presence, Scope, State
from tests.engine.engine_rig import Rig, fake, group, real, running


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(group("g", min_size=1), group("h")))) as made:
        yield made


async def grown(rig: Rig, count: int = 1) -> list[MachineRecord]:
    await rig.provider.increase_size("g", count)
    await rig.settle(5)
    return rig.records(State.RUNNING)


# -- dying -------------------------------------------------------------------------------------------------------------


async def test_a_machine_that_dies_is_replaced_also_at_the_minimum(rig: Rig) -> None:
    (dead,) = await grown(rig)
    rig.cloud.kill(dead.machine_id)
    await rig.settle(25)
    assert await rig.states() == ["running"], "it may come back for five minutes"
    await rig.settle(10)
    assert await rig.provider.target_size("g") == 1
    await rig.settle(10)
    (new,) = rig.records(State.RUNNING)
    assert new.replaces == dead.name
    assert rig.alive() == [new.name]
    assert [e.data["replacement"] for e in await rig.events("repair")] == [new.name]


async def test_a_machine_that_comes_back_in_time_is_left_alone(rig: Rig) -> None:
    await grown(rig)
    record = rig.records(State.RUNNING)[0]
    observer = rig.engine.workers["sim"].observer
    for _ in range(3):
        rig.cloud._change(record.machine_id, lambda entry, now: replace(entry, dies_at=now))
        await rig.settle(20)
        assert observer.observation(record.name).listed.dead_since is not None
        rig.cloud._change(record.machine_id, lambda entry, _: replace(entry, dies_at=None))
        await rig.turn(10)
        assert observer.observation(record.name).listed.dead_since is None
    assert rig.records(State.RUNNING) == [record]


async def test_the_target_never_moves_while_machines_are_replaced_one_by_one(rig: Rig) -> None:
    """A fifth of ten may be replaced at a time."""
    old = await grown(rig, 10)
    for record in old[:2]:
        rig.cloud.kill(record.machine_id)
    for _ in range(60):
        await rig.turn(10)
        assert await rig.provider.target_size("g") == 10
        unready = [r for r in rig.records(State.REQUESTED, State.CREATING, State.BOOTING) if r.replaces]
        assert len(unready) <= 2
    assert len(rig.alive()) == 10
    assert {r.replaces for r in rig.records(State.RUNNING) if r.replaces} == {r.name for r in old[:2]}


async def test_the_breaker_replaces_nothing_when_half_a_group_is_called_broken(rig: Rig) -> None:
    for record in (await grown(rig, 4))[:2]:
        rig.cloud.kill(record.machine_id)
    await rig.settle(60)
    assert await rig.states() == ["running"] * 4
    assert rig.cloud.calls().get("delete", 0) == 0
    assert len(await rig.events("breaker")) == 1, "told once"


async def test_a_replacement_that_dies_too_is_replaced_in_turn(rig: Rig) -> None:
    """Even while the one before it ignores its deletion."""
    (first,) = await grown(rig)
    rig.chaos(ignoresDelete=1)
    rig.cloud.kill(first.machine_id)
    await rig.settle(45)
    (second,) = rig.records(State.RUNNING)
    rig.cloud.kill(second.machine_id)
    await rig.settle(45)
    (third,) = rig.records(State.RUNNING)
    assert (second.replaces, third.replaces) == (first.name, second.name)
    assert {r.name for r in rig.records(State.DELETING)} == {first.name, second.name}
    rig.chaos()
    await rig.settle(20)
    assert rig.alive() == [third.name]


async def test_no_repair_when_it_is_off_or_paused_or_the_group_is_draining(tmp_path: Path) -> None:
    off = EngineSettings(repair=RepairSettings(enabled=False))
    async with running(Rig(tmp_path, settings=off, groups=(group("g", min_size=1), group("h")))) as rig:
        (record,) = await grown(rig)
        rig.cloud.kill(record.machine_id)
        await rig.settle(60)
        assert rig.records(State.RUNNING) == [record]
        await rig.pause(Scope.GROUP, "g")
        await rig.reconfigure(settings=EngineSettings())
        await rig.settle(60)
        assert rig.records(State.RUNNING) == [record]
        await rig.resume(Scope.GROUP, "g")
        await rig.reconfigure(group("h"))
        await rig.settle(60)
        assert rig.records(State.RUNNING) == [record]
        await rig.reconfigure(group("g"), group("h"))
        await rig.settle(60)
        assert [r.replaces for r in rig.records(State.RUNNING)] == [record.name]


async def test_at_a_guards_limit_a_broken_machine_is_kept_and_told_of(tmp_path: Path) -> None:
    """To replace it there would have to be one too many for a while."""
    settings = EngineSettings(guards=GuardLimits(max_machines=2))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        record = (await grown(rig, 2))[0]
        rig.cloud.kill(record.machine_id)
        await rig.settle(60)
        assert await rig.states() == ["running"] * 2
        (told,) = await rig.events("repair")
        assert "maxMachines" in told.message
        await rig.reconfigure(settings=EngineSettings(guards=GuardLimits(max_machines=3)))
        await rig.settle(20)
        assert len(rig.alive()) == 2
        assert {r.replaces for r in rig.records(State.RUNNING)} == {"", record.name}


# -- vanishing ---------------------------------------------------------------------------------------------------------


async def test_a_machine_that_vanishes_is_gone_after_two_lists(rig: Rig) -> None:
    first, second = await grown(rig, 2)
    rig.cloud.vanish(first.machine_id)
    await rig.turn(10)
    assert await rig.provider.target_size("g") == 2
    await rig.turn(10)
    assert await rig.provider.target_size("g") == 1
    assert [i.id for i in await rig.shown()] == [second.provider_id]
    await rig.settle(60)
    assert rig.alive() == [second.name], "above the minimum the autoscaler decides"


async def test_below_the_minimum_what_vanished_is_replaced(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, groups=(group("g", min_size=3),))) as rig:
        for record in (await grown(rig, 4))[:2]:
            rig.cloud.vanish(record.machine_id)
        await rig.settle(10)
        assert await rig.provider.target_size("g") == 3
        assert len(rig.alive()) == 3
        assert sum(bool(r.replaces) for r in rig.records(State.RUNNING)) == 1


async def test_below_the_minimum_and_at_a_guards_limit_what_vanished_is_replaced_all_the_same(tmp_path: Path) -> None:
    settings = EngineSettings(guards=GuardLimits(max_machines=2))
    async with running(Rig(tmp_path, groups=(group("g", min_size=2),), settings=settings)) as rig:
        rig.cloud.vanish((await grown(rig, 2))[0].machine_id)
        await rig.settle(10)
        assert await rig.states() == ["running"] * 2
        assert len(rig.alive()) == 2


async def test_a_machine_that_vanishes_while_it_boots_has_failed(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.turn()
    rig.cloud.vanish(rig.records()[0].machine_id)
    await rig.settle(4)
    (instance,) = await rig.shown()
    assert instance.error is not None
    assert instance.error.code == "vanished"
    assert await rig.provider.target_size("g") == 1


# -- not doing as told -------------------------------------------------------------------------------------------------


async def test_a_machine_that_ignores_its_deletion_is_asked_again_and_again_and_stays_shown(rig: Rig) -> None:
    await grown(rig, 1)
    rig.chaos(ignoresDelete=1)
    await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
    await rig.settle(30)
    (instance,) = await rig.shown()
    assert instance.state is InstanceState.DELETING
    calls = rig.cloud.calls()["delete"]
    assert 3 <= calls <= 15, "with a growing pause between"
    rig.chaos()
    await rig.settle(15)
    assert (await rig.shown(), rig.alive()) == ([], [])


async def test_a_machine_that_never_boots_fails_at_its_deadline_and_is_removed_at_once(rig: Rig) -> None:
    rig.chaos(neverBoots=1)
    await rig.provider.increase_size("g", 1)
    await rig.settle(59)
    assert (await rig.shown())[0].error is None
    await rig.settle(3)
    (instance,) = await rig.shown()
    assert instance.state is InstanceState.CREATING
    assert instance.error is not None
    assert instance.error.code == "deadline"
    await rig.settle(3)
    assert rig.alive() == [], "its resources are deleted at once"
    assert await rig.shown() == [instance], "it stays listed for the autoscaler"
    await rig.settle(110)
    assert await rig.provider.target_size("g") == 1
    await rig.settle(15)
    assert await rig.provider.target_size("g") == 0, "until its time is up"


async def test_deadlines_can_be_set(tmp_path: Path) -> None:
    settings = EngineSettings(create_deadline=timedelta(seconds=60), failed_ttl=timedelta(seconds=100))
    options = SimulatedOptions(boot_time=timedelta(hours=1), delete_time=timedelta(seconds=1))
    async with running(Rig(tmp_path, settings=settings, options=options)) as rig:
        await rig.provider.increase_size("g", 1)
        await rig.settle(6)
        assert await rig.states() == ["booting"]
        await rig.settle(2)
        assert await rig.states() == ["failed"]
        await rig.settle(8)
        assert await rig.states() == ["failed"]
        await rig.settle(3)
        assert await rig.states() == []


async def test_not_found_ends_a_deletion_once_and_for_all(tmp_path: Path) -> None:
    """Some drivers raise it, although they need not: it is no sign that the machine came back."""

    class Strict(Rig):
        def driver(self) -> Driver:
            driver = super().driver()
            delete = driver.delete

            async def strict(machine: Machine) -> None:
                if machine.machine_id not in {m.machine_id for m in self.cloud.machines()}:
                    raise NotFoundError(f"there is no machine {machine.machine_id}")
                await delete(machine)

            driver.delete = strict  # type: ignore[method-assign]  # a driver of another kind
            return driver

    async with running(Strict(tmp_path, groups=(group("g"),))) as rig:
        (record,) = await grown(rig)
        rig.cloud.vanish(record.machine_id)
        await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
        await rig.engine.workers["sim"].act()
        await rig.engine.workers["sim"].caller.settled()
        await rig.engine.workers["sim"].act()
        assert rig.records() == rig.records(State.GONE)
        await rig.settle(30)
        assert await rig.events("returned") == []
        assert rig.engine.workers["sim"].caller.statistics.ended["delete", "not_found"] == 1


# -- losing tags -------------------------------------------------------------------------------------------------------


async def test_a_running_machine_that_loses_its_tags_runs_on_and_is_not_deleted(rig: Rig) -> None:
    (record,) = await grown(rig)
    rig.cloud.lose_tags(record.machine_id)
    await rig.settle(5)
    assert rig.records(State.RUNNING) == [record]
    await rig.provider.delete_nodes("g", [real((await rig.shown())[0])])
    await rig.settle(30)
    assert rig.alive() == [record.name], "law 4: without proof nothing is deleted"
    assert [i.state for i in await rig.shown()] == [InstanceState.DELETING]
    (told,) = await rig.events("unproven")
    assert record.machine_id in told.message
    assert "cloudgraft orphans release" in told.message


async def test_a_machine_that_lost_its_tags_before_its_answer_came_is_neither_made_again_nor_touched(
    tmp_path: Path,
) -> None:
    """The answer to its create got lost as well: all that is known is a stranger with the right name."""
    settings = EngineSettings(guards=GuardLimits(max_machines=5))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        rig.chaos(losesTags=1, create={"lost": 1})
        await rig.provider.increase_size("g", 1)
        await rig.settle(70)
        (instance,) = await rig.shown()
        assert instance.error is not None
        assert instance.error.code == "unproven"
        assert len(rig.cloud.ledger()) == 1
        await rig.provider.delete_nodes("g", [fake(instance)])
        await rig.settle(30)
        assert len(rig.alive()) == 1
        assert [r.presence for r in rig.records(State.DELETING)] == [Presence.UNKNOWN]
        assert rig.engine.guard_usage.tallies["sim"].machines == 1, "it is there, and it counts"


async def test_a_machine_that_lost_its_tags_after_its_answer_came_boots_and_runs(rig: Rig) -> None:
    rig.chaos(losesTags=1)
    assert [r.state for r in await grown(rig, 2)] == [State.RUNNING] * 2
    assert len(rig.cloud.ledger()) == 2


@pytest.mark.parametrize("fault", ["", "lost"])
async def test_the_incident_lost_tags_and_a_retrying_autoscaler_order_no_more_than_the_guard_allows(
    tmp_path: Path, fault: str
) -> None:
    """Every machine loses its tags and never boots; the autoscaler deletes what failed and asks again, for hours."""
    settings = EngineSettings(guards=GuardLimits(max_machines=4), create_deadline=timedelta(seconds=100))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        rig.chaos(losesTags=1, neverBoots=1, create={fault: 1} if fault else {})
        refused: set[str] = set()
        for _ in range(40):
            missing = 3 - await rig.provider.target_size("g")
            if missing > 0:
                await rig.provider.increase_size("g", missing)
            await rig.settle(6, 20)
            failed = [i for i in await rig.shown() if i.error]
            if failed:
                await rig.provider.delete_nodes("g", [fake(i, "create-error") for i in failed])
            refused |= {i.error.code for i in failed if i.error}
            assert len(rig.alive()) <= 4
        assert len(rig.cloud.ledger()) == 4
        assert "guard" in refused
        assert await rig.events("guard")


async def test_the_incident_goes_on_within_the_guard_when_the_journal_forgot_them(tmp_path: Path) -> None:
    """Machines that only look like ours still count: by their names, since their tags are lost."""
    settings = EngineSettings(guards=GuardLimits(max_machines=3))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        for record in await grown(rig, 2):
            rig.cloud.lose_tags(record.machine_id)
        await rig.wipe()
        await rig.start()
        await rig.turn(10)
        assert await rig.provider.target_size("g") == 0, "without proof they are not adopted"
        await rig.provider.increase_size("g", 2)
        await rig.settle(5)
        assert len(rig.alive()) == 3
        assert sorted(i.error.code if i.error else "" for i in await rig.shown()) == ["", "guard"]
        assert len(await rig.events("orphan")) == 2
