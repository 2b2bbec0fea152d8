"""A peering that is about to be ended, and a create that comes to it at that moment."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.liqo.liqo_world import World, spec


@pytest.mark.thorough
async def test_creates_and_ends_of_peerings_get_along(world: World) -> None:
    hasty = {"unpeer_after": timedelta(0), "look_every": timedelta(seconds=0.01)}
    async with world.started(**hasty) as driver:
        for number in range(6):
            machine = await driver.create(spec(f"node-{number}"))
            assert machine.name in {one.name for one in await driver.list()}
            await driver.delete(machine)
            await asyncio.sleep(0.3 * (number % 3))  # no condition: any moment will do
        await driver.create(spec("last"))
        await world.has_node("last")
    assert world.slices()[-1].endswith("/last")
