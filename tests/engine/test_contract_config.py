"""A changed configuration, guards that come and go, and pauses: applied at Refresh, without touching what runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits, Money
from cloudgraft.sdk.errors import NotFoundError, PreconditionError
from cloudgraft.sdk.types import InstanceState
from cloudgraft.store.records import Scope, State
from tests.engine.engine_rig import Rig, fake, group, real, running

G, H = group("g"), group("h")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(G, H))) as made:
        yield made


async def shown_groups(rig: Rig) -> dict[str, tuple[int, int]]:
    return {g.id: (g.min_size, g.max_size) for g in await rig.provider.node_groups()}


# -- groups ------------------------------------------------------------------------------------------------------------


async def test_r4_sizes_change_at_refresh_and_not_before(rig: Rig) -> None:
    rig.groups = (replace(G, min_size=2, max_size=4), H)
    rig.engine.reconfigure(rig.desired_state())
    assert await shown_groups(rig) == {"g": (0, 10), "h": (0, 10)}
    await rig.provider.increase_size("g", 1)
    found = await rig.provider.node_group_for_node(fake((await rig.shown())[0]))
    assert found is not None
    assert found.max_size == 10, "R23"
    await rig.provider.refresh()
    assert await shown_groups(rig) == {"g": (2, 4), "h": (0, 10)}
    found = await rig.provider.node_group_for_node(fake((await rig.shown())[0]))
    assert found is not None
    assert (found.min_size, found.max_size) == (2, 4)


async def test_r15_a_maximum_below_the_target_deletes_nothing(rig: Rig) -> None:
    await rig.provider.increase_size("g", 4)
    await rig.settle(5)
    await rig.reconfigure(replace(G, max_size=2), H)
    await rig.settle(5)
    assert await shown_groups(rig) == {"g": (0, 2), "h": (0, 10)}
    assert await rig.provider.target_size("g") == 4
    assert len(rig.alive()) == 4


async def test_changed_machine_settings_are_for_new_machines_only(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    await rig.provider.increase_size("g", 1)  # asked for as the file was then, and not yet sent
    await rig.reconfigure(replace(G, machine={"shape": "medium"}), H)
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert sorted(entry.shape for entry in rig.cloud.ledger()) == ["medium", "small", "small"]
    assert len(rig.alive()) == 3
    assert str((await rig.provider.template("g")).capacity["cpu"]) == "4"


async def test_r4_r12_the_order_of_groups_is_that_of_the_file_and_survives(rig: Rig) -> None:
    await rig.reconfigure(group("z"), G, group("a"), H)
    await rig.settle(1)
    await rig.provider.refresh()
    for _ in range(2):
        assert list(await shown_groups(rig)) == ["z", "g", "a", "h"]
        await rig.restart()


async def test_a_removed_group_drains_and_is_removed_when_it_is_empty(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    instances = await rig.shown()
    await rig.reconfigure(H)
    assert await shown_groups(rig) == {"h": (0, 10), "g": (0, 2)}
    assert await rig.shown() == instances, "nothing is deleted for that"
    with pytest.raises(PreconditionError, match="no longer configured"):
        await rig.provider.increase_size("g", 1)
    await rig.restart()  # it stays, although no file tells of it
    assert await shown_groups(rig) == {"h": (0, 10), "g": (0, 2)}
    for instance in instances:
        await rig.provider.delete_nodes("g", [real(instance)])
        await rig.settle(5)
        await rig.provider.refresh()
    assert await shown_groups(rig) == {"h": (0, 10)}
    with pytest.raises(NotFoundError):
        await rig.provider.target_size("g")
    found = await rig.provider.node_group_for_node(real(instances[0]))
    assert found is None, "R18: never a group that is not listed"
    assert [e.kind for e in await rig.events("draining", "removed")] == ["draining", "removed"]


async def test_a_group_that_comes_back_while_it_drains_grows_again(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    await rig.reconfigure(H)
    await rig.reconfigure(G, H)
    assert await shown_groups(rig) == {"g": (0, 10), "h": (0, 10)}
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert len(rig.alive()) == 2


async def test_a_group_that_comes_back_after_it_was_removed_is_as_new(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (old,) = await rig.shown()
    await rig.provider.delete_nodes("g", [real(old)])
    await rig.settle(5)
    await rig.reconfigure(H)
    assert await shown_groups(rig) == {"h": (0, 10)}
    await rig.reconfigure(G, H)
    await rig.provider.delete_nodes("g", [real(old)])  # R56: it was of this group
    assert await rig.provider.target_size("g") == 0
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert await rig.provider.target_size("g") == 1


async def test_law_6_a_group_that_cannot_be_completed_leaves_the_others_alone(rig: Rig) -> None:
    await rig.reconfigure(G, H, group("bad", machine={"shape": "enormous"}))
    assert await shown_groups(rig) == {"g": (0, 10), "h": (0, 10)}
    assert "enormous" in rig.engine.left_out()["bad"]
    # One that was fine once is served as it was.
    await rig.provider.increase_size("g", 1)
    await rig.reconfigure(replace(G, machine={"shape": "enormous"}, max_size=3), H)
    assert await shown_groups(rig) == {"g": (0, 3), "h": (0, 10)}
    await rig.settle(5)
    assert await rig.states() == ["running"]


# -- guards ------------------------------------------------------------------------------------------------------------


async def test_a_guard_that_is_new_counts_what_is_there_from_its_first_moment(rig: Rig) -> None:
    await rig.provider.increase_size("g", 3)
    await rig.settle(5)
    await rig.reconfigure(settings=EngineSettings(guards=GuardLimits(max_machines=4)))
    await rig.provider.increase_size("g", 3)
    assert [i.error.code for i in await rig.shown() if i.error] == ["guard", "guard"]
    await rig.settle(5)
    assert len(rig.alive()) == 4


async def test_a_guard_that_goes_and_comes_again_does_not_count_from_memory(rig: Rig) -> None:
    for _ in range(5):
        await rig.provider.increase_size("g", 1)
        await rig.settle(4)
        await rig.provider.delete_nodes("g", [real(i) for i in await rig.shown()])
        await rig.settle(4)
    await rig.reconfigure(settings=EngineSettings(guards=GuardLimits(max_machines=1)))
    await rig.provider.increase_size("g", 1)
    assert not any(i.error for i in await rig.shown())


async def test_creates_per_hour_hold_over_every_kind_of_life_and_pass_with_time(tmp_path: Path) -> None:
    settings = EngineSettings(guards=GuardLimits(max_creates_per_hour=3))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        for _ in range(5):
            await rig.provider.increase_size("g", 1)
            await rig.settle(4)
            await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
            await rig.settle(4)
        assert len(rig.cloud.ledger()) == 3
        await rig.restart()
        await rig.provider.increase_size("g", 1)
        assert [i.error.code for i in await rig.shown() if i.error] == ["guard"]
        rig.clock.advance(3600)
        await rig.turn()
        await rig.provider.increase_size("g", 1)
        await rig.settle(4)
        assert len(rig.cloud.ledger()) == 4


async def test_a_retry_before_the_next_list_does_not_count_its_machine_twice(tmp_path: Path) -> None:
    settings = EngineSettings(guards=GuardLimits(max_machines=1))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        rig.chaos(create={"rateLimits": {"next": 1}}, retryAfter=2)
        await rig.provider.increase_size("g", 1)
        worker = rig.engine.workers["sim"]
        for _ in range(6):  # between two lists
            await worker.act()
            await worker.caller.settled()
            rig.clock.advance(1)
        await rig.settle(5)
        assert await rig.states() == ["running"]


async def test_a_count_in_the_middle_of_an_increase_does_not_lose_it(tmp_path: Path) -> None:
    """Law 10 is about money: a list at the wrong moment must not make room for more."""
    settings = EngineSettings(guards=GuardLimits(max_machines=5))
    async with running(Rig(tmp_path, settings=settings, groups=(G, H))) as rig:
        for _ in range(4):
            more = [rig.provider.increase_size(id_, 2) for id_ in ("g", "h")]
            await asyncio.gather(*more, rig.engine.workers["sim"].observer.observe())
        await rig.settle(5)
        assert len(rig.alive()) == 5
        assert len(rig.cloud.ledger()) == 5


async def test_a_guard_is_asked_again_before_every_call(tmp_path: Path) -> None:
    """Machines that look like ours turn up after more were promised: those that are not sent yet are not sent."""
    slow = CloudSettings(name="sim", create_timeout=timedelta(seconds=30), calls_per_second=0.1)
    settings = EngineSettings(guards=GuardLimits(max_machines=3))
    async with running(Rig(tmp_path, settings=settings, cloud_settings=slow)) as rig:
        await rig.provider.increase_size("g", 3)
        await rig.turn()
        assert len(rig.alive()) == 1
        for _ in range(2):
            rig.place(rig.engine.identity.new_name("g"), {})
        await rig.settle(8)
        assert len(rig.alive()) == 3
        assert sorted(i.error.code if i.error else "" for i in await rig.shown()) == ["", "guard", "guard"]


async def test_a_days_money_is_not_exceeded(tmp_path: Path) -> None:
    """A small machine costs some cents an hour; the day's money buys hours of it, not machines."""
    probe = Rig(tmp_path)
    hourly = next(p.hourly for p in probe.cloud.prices() if p.shape == "small")
    cap = Money(amount=hourly * 10, currency="EUR")
    settings = EngineSettings(guards=GuardLimits(max_spend_per_day=cap))
    async with running(Rig(tmp_path, settings=settings, groups=(group("g", max_size=1000),))) as rig:
        for _ in range(24):
            await rig.provider.increase_size("g", 1)
            await rig.settle(6, 100)
            failed = [i for i in await rig.shown() if i.error]
            if failed:
                await rig.provider.delete_nodes("g", [fake(i) for i in failed])
        spent = sum((entry.cost for entry in rig.cloud.ledger()), Decimal(0))
        # Each machine was bought while the last 24 hours and the next hour of all were within the cap.
        assert len(rig.cloud.ledger()) >= 3
        last = max(entry.created_at for entry in rig.cloud.ledger())
        at_last = sum(hourly * Decimal((last - e.created_at) / 3600 + 1) for e in rig.cloud.ledger())
        assert at_last <= cap.amount
        assert spent > 0


async def test_a_clouds_own_guard_holds_too(tmp_path: Path) -> None:
    own = CloudSettings(name="sim", create_timeout=timedelta(seconds=30), guards=GuardLimits(max_machines=1))
    async with running(Rig(tmp_path, cloud_settings=own)) as rig:
        await rig.provider.increase_size("g", 2)
        errors = [i.error for i in await rig.shown() if i.error]
        assert [(e.code, e.message) for e in errors] == [("guard", "clouds.sim.engine.guards.maxMachines is 1")]


# -- pauses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "name"), [(Scope.GROUP, "g"), (Scope.CLOUD, "sim")])
async def test_a_pause_makes_and_removes_nothing_and_answers_the_truth(rig: Rig, scope: Scope, name: str) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    await rig.provider.increase_size("g", 1)  # not yet sent
    await rig.pause(scope, name)
    victim = rig.records(State.RUNNING)[0]
    await rig.provider.delete_nodes("g", [real(i) for i in await rig.shown() if i.id == victim.provider_id])
    await rig.settle(10)
    assert len(rig.alive()) == 2
    assert sorted(await rig.states()) == ["deleting", "requested", "running"]
    assert await rig.provider.target_size("g") == 2
    await rig.restart()
    await rig.settle(5)
    assert len(rig.alive()) == 2, "a restart does not end it"
    await rig.resume(scope, name)
    await rig.settle(8)
    assert sorted(await rig.states()) == ["running", "running"]
    assert len(rig.alive()) == 2


async def test_a_paused_group_tells_so_and_another_goes_on(rig: Rig) -> None:
    await rig.pause(Scope.GROUP, "g")
    await rig.provider.increase_size("g", 1)
    await rig.provider.increase_size("h", 1)
    await rig.settle(5)
    (refused,) = await rig.shown("g")
    assert refused.error is not None
    assert (refused.state, refused.error.code) == (InstanceState.CREATING, "paused")
    assert "a test" in refused.error.message
    assert await rig.states("h") == ["running"]


async def test_what_waits_too_long_in_a_pause_fails_at_its_deadline(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.pause(Scope.GROUP, "g")
    await rig.settle(61)
    (instance,) = await rig.shown()
    assert instance.error is not None
    assert instance.error.code == "deadline"


async def test_what_a_removed_group_had_not_ordered_yet_is_not_ordered_any_more(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    rig.groups = ()
    rig.engine.reconfigure(rig.desired_state())
    await rig.provider.refresh()
    await rig.turn()
    assert rig.cloud.ledger() == []
    assert [instance.error.code for instance in await rig.shown() if instance.error] == ["draining"] * 2
