"""The demo's world: an engine that dies in the middle of an order, and what the demo would say if that went wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.demo.checks import StoryError
from cloudgraft.demo.day import play
from cloudgraft.demo.engine_world import EngineWorld
from cloudgraft.demo.events import Books, CrashState
from cloudgraft.demo.timetable import MINUTE, waves_of_the_day
from cloudgraft.engine.machines.identity import TAG_GROUP
from cloudgraft.sdk import InstanceState
from cloudgraft.simcloud.options import MachineSettings
from cloudgraft.simcloud.records import Order
from tests.demo.playing import Keeper


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EngineWorld]:
    made = EngineWorld(tmp_path)
    await made.provider.start()
    yield made
    await made.provider.close()


async def die_ordering(world: EngineWorld, count: int = 1) -> CrashState:
    """What the demo does: the old provider is closed after the death, the new one is started."""
    old = world.provider
    await old.increase_size("gpu", count)
    crash = await world.die()
    await old.close()
    await world.provider.start()
    return crash


async def test_time_moves_and_machines_follow_as_the_cloud_has_them(world: EngineWorld) -> None:
    await world.provider.increase_size("small", 2)
    await world.advance(5 * MINUTE)
    assert await world.machines() == []
    await world.advance(5 * MINUTE)
    assert [machine.name for machine in await world.machines()] == ["small-1", "small-2"]
    listed = await world.provider.instances("small")
    assert {instance.id for instance in listed} == {machine.provider_id for machine in await world.machines()}
    assert {instance.state for instance in listed} == {InstanceState.RUNNING}


async def test_a_node_looks_as_its_groups_template_says(world: EngineWorld) -> None:
    await world.provider.increase_size("gpu", 1)
    await world.advance(10 * MINUTE)
    (machine,) = await world.machines()
    template = await world.provider.template("gpu")
    assert machine.shape.labels == template.labels
    assert machine.shape.taints == {taint.key for taint in template.taints}
    assert machine.shape.milli_cpu == template.allocatable["cpu"].value * 1000


async def test_a_machine_whose_order_was_never_answered_is_kept_and_not_ordered_again(world: EngineWorld) -> None:
    """Law 3, in a cloud that would make a second machine of a second order."""
    before = world.provider
    crash = await die_ordering(world)
    assert crash == CrashState(machines=1, unknown=1, ordered=["gpu-1"])
    assert world.provider is not before
    await world.advance(10 * MINUTE)
    assert world.books() == Books(machines=1, cost=0.3, lost=0, doubled=0)  # ten minutes at 1.80 an hour
    (machine,) = await world.machines()
    assert [instance.id for instance in await world.provider.instances("gpu")] == [machine.provider_id]


async def test_it_can_die_more_than_once(world: EngineWorld) -> None:
    await die_ordering(world)
    await die_ordering(world)
    await world.advance(10 * MINUTE)
    assert [machine.name for machine in await world.machines()] == ["gpu-1", "gpu-2"]
    assert (world.books().lost, world.books().doubled) == (0, 0)


async def test_death_without_an_order_is_no_chapter(world: EngineWorld) -> None:
    with pytest.raises(StoryError, match="ordered none"):
        await world.die()


# -- what the books would show -----------------------------------------------------------------------------------------


async def test_a_machine_that_vanished_is_lost(world: EngineWorld) -> None:
    await die_ordering(world)
    (machine,) = world._cloud.machines()
    world._cloud.vanish(machine.machine_id)
    assert world.books().lost == 1


async def test_a_machine_that_the_journal_does_not_know_is_lost(world: EngineWorld) -> None:
    world._cloud.create(Order(name="forgotten", settings=MachineSettings(shape="small"), tags={TAG_GROUP: "small"}))
    assert world.books().lost == 1


class OrdersTwice(EngineWorld):
    """Has its machine ordered a second time, as an engine that trusts silence would."""

    async def die(self) -> CrashState:
        crash = await super().die()
        self._cloud.create(self._cloud._ledger.all()[-1].order)
        return crash


async def test_a_second_machine_for_one_intent_fails_the_day() -> None:
    *_, train = waves_of_the_day()
    with pytest.raises(StoryError, match="wrong at 14:00: after the crash 0 machines are lost and 1 are doubled"):
        await play(Keeper(), OrdersTwice, [train])
