"""Machines come and go as the contract says, on a real journal and a simulated cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.sdk.types import InstanceState, NodeRef
from cloudgraft.store.records import State
from tests.engine.engine_rig import Rig, fake


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    await made.start()
    yield made
    await made.engine.close()


async def test_a_machine_is_requested_created_boots_and_runs(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    assert await rig.provider.target_size("g") == 2
    assert [i.state for i in await rig.shown()] == [InstanceState.CREATING] * 2
    await rig.turn()
    assert await rig.states() == ["booting", "booting"]
    await rig.settle(5)
    assert await rig.states() == ["running", "running"]
    assert len(rig.alive()) == 2
    for instance in await rig.shown():
        found = await rig.provider.node_group_for_node(NodeRef(name="n", provider_id=instance.id))
        assert found is not None
        assert found.id == "g"


async def test_a_deletion_is_shown_at_once_and_carried_out(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    victim = (await rig.shown())[0]
    await rig.provider.delete_nodes("g", [NodeRef(name="x", provider_id=victim.id)])
    assert await rig.provider.target_size("g") == 1
    assert (await rig.shown())[0].state is InstanceState.DELETING
    await rig.provider.delete_nodes("g", [NodeRef(name="x", provider_id=victim.id)])
    assert await rig.provider.target_size("g") == 1
    await rig.settle(5)
    assert len(await rig.shown()) == 1
    assert len(rig.alive()) == 1
    await rig.provider.delete_nodes("g", [fake(victim)])  # R55, R56
    assert await rig.provider.target_size("g") == 1


async def test_everything_survives_a_restart(rig: Rig) -> None:
    await rig.provider.increase_size("g", 3)
    await rig.settle(5)
    before = await rig.shown()
    await rig.restart()
    assert await rig.shown() == before
    await rig.settle(5)
    assert await rig.shown() == before
    assert rig.records(State.RUNNING)
