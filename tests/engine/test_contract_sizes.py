"""TargetSize, Nodes, IncreaseSize and DecreaseTargetSize: R25 to R48, R59 to R64; T1, T4 and T5."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import CloudSettings, EngineSettings, GuardLimits
from cloudgraft.sdk.driver import Driver, DriverTraits
from cloudgraft.sdk.errors import ErrorClass
from cloudgraft.sdk.types import InstanceState
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import Scope, State
from tests.engine.engine_rig import Rig, creating, fake, group, real, running

SLOW = CloudSettings(name="sim", create_timeout=timedelta(seconds=30), calls_per_second=0.1)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(Rig(tmp_path, groups=(group("g"), group("h")))) as made:
        yield made


async def sizes(rig: Rig, id_: str = "g") -> tuple[int, int]:
    """Target, and listed instances that are not being deleted."""
    listed = [i for i in await rig.shown(id_) if i.state is not InstanceState.DELETING]
    return await rig.provider.target_size(id_), len(listed)


# -- growing -----------------------------------------------------------------------------------------------------------


async def test_t1_a_scale_up_is_shown_at_once_as_new_creating_instances_without_error(rig: Rig) -> None:
    """R25, R27, R31, R44: one commit, no call to the cloud, the answer is there."""
    assert await sizes(rig) == (0, 0)
    calls = rig.cloud.calls().get("create", 0)
    await rig.provider.increase_size("g", 2)
    assert await sizes(rig) == (2, 2)
    assert rig.cloud.calls().get("create", 0) == calls
    first = await rig.shown()
    assert all(i.state is InstanceState.CREATING and i.error is None for i in first)
    await rig.provider.increase_size("g", 3)
    assert await sizes(rig) == (5, 5)
    assert {i.id for i in first} < {i.id for i in await rig.shown()}


async def test_r45_r46_each_increase_counts_and_groups_may_grow_at_once(rig: Rig) -> None:
    both = [rig.provider.increase_size(id_, delta) for id_, delta in (("g", 1), ("h", 2), ("g", 1), ("h", 1))]
    await asyncio.gather(*both)
    assert (await sizes(rig, "g"), await sizes(rig, "h")) == ((2, 2), (3, 3))


async def test_r26_the_target_stays_the_same_while_machines_come(rig: Rig) -> None:
    """Requested, creating, booting, running: each counts once."""
    await rig.provider.increase_size("g", 4)
    for _ in range(6):
        assert await sizes(rig) == (4, 4)
        await rig.turn(10)
    assert {i.state for i in await rig.shown()} == {InstanceState.RUNNING}


async def test_r31_ids_are_unique_and_a_known_id_never_changes(rig: Rig) -> None:
    await rig.provider.increase_size("g", 3)
    await rig.provider.increase_size("h", 3)
    await rig.turn()
    known = {i.id for id_ in ("g", "h") for i in await rig.shown(id_)}
    assert len(known) == 6
    for _ in range(5):
        await rig.turn(10)
        assert {i.id for id_ in ("g", "h") for i in await rig.shown(id_)} == known


async def test_r30_a_driver_that_knows_the_id_before_shows_it_from_the_beginning(tmp_path: Path) -> None:
    class Foreseeing(Rig):
        def driver(self) -> Driver:
            driver = super().driver()
            driver.traits = DriverTraits(provider_id="acme://{name}")
            return driver

    async with running(Foreseeing(tmp_path)) as rig:
        await rig.provider.increase_size("g", 1)
        assert [i.id for i in await rig.shown()] == [f"acme://{rig.records()[0].name}"]


# -- failing -----------------------------------------------------------------------------------------------------------


async def test_r34_r39_what_cannot_be_bought_is_listed_as_creating_with_an_error(rig: Rig) -> None:
    rig.chaos(stock={"small": 1})
    await rig.provider.increase_size("g", 3)
    await rig.turn()
    assert await sizes(rig) == (3, 3)
    failed = [i for i in await rig.shown() if i.error]
    assert len(failed) == 2
    assert {i.state for i in failed} == {InstanceState.CREATING}
    for instance in failed:
        assert instance.error is not None
        assert (instance.error.code, instance.error.error_class) == ("out_of_stock", ErrorClass.OUT_OF_RESOURCES)
        assert "small" in instance.error.message


@pytest.mark.parametrize(
    ("chaos", "code", "error_class"),
    [
        ({"quota": 0}, "quota_exceeded", ErrorClass.OUT_OF_RESOURCES),
        ({"stock": {"small": 0}}, "out_of_stock", ErrorClass.OUT_OF_RESOURCES),
        ({"neverBoots": 1}, "deadline", ErrorClass.OTHER),
        ({"dies": 1, "diesAfter": 5}, "boot_failed", ErrorClass.OTHER),
        ({"create": {"unavailable": 1}}, "deadline", ErrorClass.OTHER),
        ({"create": {"dropped": 1}}, "deadline", ErrorClass.OTHER),
    ],
    ids=["quota", "stock", "never boots", "dies", "unavailable", "dropped"],
)
async def test_r35_quota_and_stock_are_class_1_and_the_rest_is_99(
    rig: Rig, chaos: dict[str, object], code: str, error_class: ErrorClass
) -> None:
    rig.chaos(**chaos)
    await rig.provider.increase_size("g", 1)
    await rig.settle(70)
    (instance,) = await rig.shown()
    assert instance.state is InstanceState.CREATING
    assert instance.error is not None
    assert (instance.error.code, instance.error.error_class) == (code, error_class)
    assert instance.error.message


async def test_r38_a_failed_machine_stays_until_it_is_deleted_and_then_is_gone_at_once(rig: Rig) -> None:
    rig.chaos(quota=0)
    await rig.provider.increase_size("g", 2)
    await rig.settle(3)
    failed = await rig.shown()
    assert await sizes(rig) == (2, 2)
    await rig.provider.delete_nodes("g", [fake(i, "create-error") for i in failed])
    assert await sizes(rig) == (0, 0)
    assert creating(await rig.shown()) == []


async def test_r39_a_cloud_that_is_down_shows_in_one_loop(rig: Rig) -> None:
    rig.chaos(list={"unavailable": 1})
    await rig.turn(10)
    await rig.turn(10)
    await rig.provider.increase_size("g", 2)
    shown = await rig.shown()
    assert await sizes(rig) == (2, 2)
    assert {i.error.error_class for i in shown if i.error} == {ErrorClass.OTHER}
    assert all(i.error and "cannot be used" in i.error.message for i in shown)
    assert rig.cloud.calls().get("create", 0) == 0
    rig.chaos()
    await rig.settle(3)
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    assert len(rig.alive()) == 1, "what failed is not tried again, what is asked for later comes"


async def test_r39_waiting_machines_fail_too_when_their_cloud_goes_down(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, cloud_settings=SLOW)) as rig:
        await rig.provider.increase_size("g", 5)
        await rig.turn()
        rig.chaos(list={"unavailable": 1})
        await rig.settle(2)
        assert sum(i.error is not None for i in await rig.shown()) >= 3
        assert await sizes(rig) == (5, 5)


async def test_r39_a_guard_and_a_pause_show_in_one_loop(tmp_path: Path) -> None:
    settings = EngineSettings(guards=GuardLimits(max_machines=2))
    async with running(Rig(tmp_path, settings=settings)) as rig:
        await rig.provider.increase_size("g", 3)
        assert [i.error.code if i.error else "" for i in await rig.shown()].count("guard") == 1
        await rig.pause(Scope.GROUP, "g")
        await rig.provider.increase_size("g", 1)
        codes = sorted(i.error.code for i in await rig.shown() if i.error)
        assert codes == ["guard", "paused"]
        assert await sizes(rig) == (4, 4)


async def test_r12_r28_r42_no_read_fails_while_a_cloud_is_down(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    before = await rig.shown()
    rig.chaos(list={"unavailable": 1}, create={"unavailable": 1}, delete={"unavailable": 1})
    await rig.settle(10)
    await rig.provider.refresh()
    assert [g.id for g in await rig.provider.node_groups()] == ["g", "h"]
    assert await rig.shown() == before
    assert await sizes(rig) == (2, 2)


# -- DecreaseTargetSize ------------------------------------------------------------------------------------------------


async def test_t5_r59_only_what_was_never_sent_is_taken_back_newest_first(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, cloud_settings=SLOW)) as rig:
        for _ in range(4):
            await rig.provider.increase_size("g", 1)
            rig.clock.advance(1)
        await rig.turn()
        sent = rig.records(State.BOOTING)
        oldest = min(rig.records(State.REQUESTED), key=lambda r: r.requested_at)
        assert len(sent) == 1
        await rig.provider.decrease_target_size("g", -2)
        assert await sizes(rig) == (2, 2)
        assert {r.name for r in rig.records(State.REQUESTED, State.BOOTING)} == {sent[0].name, oldest.name}
        # R62: more than there is to give back is no error, and touches nothing else.
        await rig.provider.decrease_target_size("g", -5)
        assert await sizes(rig) == (1, 1)
        await rig.provider.decrease_target_size("g", -1)
        assert await sizes(rig) == (1, 1)
        await rig.settle(10)
        assert [r.name for r in rig.records(State.RUNNING)] == [sent[0].name]
        assert rig.cloud.calls()["create"] == 1


async def test_t4_r63_a_decrease_and_the_deletion_of_the_same_machines_count_once(rig: Rig) -> None:
    """1.36 and later send both, in this order, for a scale-up that took too long."""
    rig.chaos(bootTime=10_000)
    await rig.provider.increase_size("g", 2)
    await rig.turn()
    await rig.provider.decrease_target_size("g", -2)
    assert await sizes(rig) == (2, 2), "they are being created: they exist"
    assert len(rig.alive()) == 2
    await rig.provider.delete_nodes("g", [fake(i) for i in await rig.shown()])
    assert await sizes(rig) == (0, 0)
    await rig.settle(5)
    assert rig.alive() == []


async def test_r61_a_decrease_by_the_whole_scale_up_leaves_what_has_arrived(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, cloud_settings=SLOW)) as rig:
        await rig.provider.increase_size("g", 3)
        await rig.settle(2, 10)
        here = len(rig.alive())
        assert here == 2
        await rig.provider.decrease_target_size("g", -3)
        assert await sizes(rig) == (2, 2)
        await rig.settle(10)
        assert len(rig.alive()) == 2


async def test_r62_a_decrease_never_touches_failed_or_running_machines(rig: Rig) -> None:
    rig.chaos(stock={"small": 1})
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    before = await rig.shown()
    await rig.provider.decrease_target_size("g", -2)
    assert await rig.shown() == before
    assert await sizes(rig) == (2, 2)


async def test_r64_an_unmet_target_does_not_stay_for_ever(tmp_path: Path) -> None:
    """What never came fails at its deadline and goes when its time is up, with no autoscaler to help."""
    options = SimulatedOptions(boot_time=timedelta(hours=9))
    async with running(Rig(tmp_path, options=options)) as rig:
        await rig.provider.increase_size("g", 1)
        await rig.settle(62)
        assert rig.records(State.FAILED)
        await rig.settle(125)
        assert await sizes(rig) == (0, 0)
        assert rig.alive() == []


async def test_r29_nothing_but_an_accepted_deletion_lowers_the_target(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    await rig.provider.node_group_for_node(real((await rig.shown())[0]))
    await rig.provider.refresh()
    await rig.settle(20)
    assert await sizes(rig) == (2, 2)
