"""The engine over a dock: a driver that is cut off, and a machine class that is gone, cost no machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.app.dock_wiring import ListOnDriverEvent
from cloudgraft.dock.protocol.codes import Verb
from cloudgraft.dock.protocol.messages import Key
from cloudgraft.engine.groups.desired import CloudDeclaration
from cloudgraft.engine.groups.specs import CloudSettings
from cloudgraft.engine.provider import EngineProvider
from cloudgraft.sdk.driver import Driver, DriverTraits, Idempotency
from cloudgraft.sdk.errors import NotFoundError
from cloudgraft.sdk.types import NodeRef
from tests.conditions import until
from tests.dock.driver.connected_driver import KEY, ConnectedDriver, Slow
from tests.dock.driver.dock_rig import DockRig, docked
from tests.engine.scripted_cloud import Cloud, desired_state, group, live


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[DockRig]:
    async with docked(DockRig(tmp_path)) as made:
        yield made


@pytest.fixture
async def connected() -> AsyncIterator[ConnectedDriver]:
    async with ConnectedDriver() as made:
        yield made


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_driver_cut_off_in_mid_create_and_back_again_has_made_one_machine(
    connected: ConnectedDriver, tmp_path: Path, elsewhere: bool
) -> None:
    """Laws 1 to 3 with the real hub, the real runner and an engine that runs by its own clock."""
    behind = Slow(DriverTraits(idempotency=Idempotency.NONE))
    runner = await connected.dial_in(behind)
    cloud: Driver = connected.remote_cloud() if elsewhere else connected.cloud()
    async with live(tmp_path, desired_state({"a": cloud}, group())) as engine:
        provider = EngineProvider(engine)
        await until(lambda: not engine.trouble(), what="the cloud was listed")
        await provider.increase_size("g", 1)
        await until(lambda: bool(behind.machines), what="the driver has begun")
        await runner.stop(0)
        assert await provider.target_size("g") == 1
        behind.may_answer.set()
        await connected.dial_in(behind)

        async def runs() -> bool:
            return [instance.state.name for instance in await provider.instances("g")] == ["RUNNING"]

        await until(runs, what="it was found by a list")
        assert (len(behind.specs), len(behind.machines)) == (1, 1)


async def test_a_driver_that_comes_or_goes_is_noticed_at_once(connected: ConnectedDriver, tmp_path: Path) -> None:
    """However far off the next list is. What comes and goes again and again is looked at now and then."""
    settings = CloudSettings(name="a", observe_every=timedelta(hours=1))
    cloud = CloudDeclaration(settings=settings, make=connected.cloud)
    async with live(tmp_path, replace(desired_state({}, group()), clouds={"a": cloud})) as engine:
        connected.hub.listen(ListOnDriverEvent(engine, at_most_every=0.01))
        health = engine.workers["a"].observer.health
        await until(lambda: health.failures > 0, what="it was looked for")
        runner = await connected.dial_in(Cloud())
        await until(lambda: health.listed_at is not None, what="it was noticed")
        await runner.stop(0)
        await until(lambda: health.failures > 0, what="its end was noticed")


async def test_repeated_events_of_a_driver_list_its_cloud_twice(connected: ConnectedDriver, tmp_path: Path) -> None:
    async with live(tmp_path, desired_state({"a": connected.cloud()}, group())) as engine:
        nudges: list[bool] = []
        engine.workers["a"].nudge = lambda *, needs_look=True: nudges.append(needs_look)  # type: ignore[method-assign]
        looks = ListOnDriverEvent(engine, at_most_every=0.05)
        for _ in range(100):
            looks(KEY)
        looks(Key(kind="Other", api_version="v1"))
        assert nudges == [True]
        await until(lambda: len(nudges) == 2, what="once more")


async def test_a_class_that_is_gone_makes_no_more_machines_and_still_deletes_those_there_are(rig: DockRig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(6)
    ids = [instance.id for instance in await rig.shown()]
    rig.connected.classes.is_there = False
    await rig.provider.increase_size("g", 1)
    await rig.settle(2)
    assert [i.error.code for i in await rig.shown() if i.error] == [NotFoundError.slug]
    await rig.provider.delete_nodes("g", [NodeRef(name="n", provider_id=ids[0])])
    await rig.settle(5)
    assert len(rig.alive()) == 1


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_machine_whose_connection_was_cut_in_mid_create_is_one_machine(rig: DockRig, cut: str) -> None:
    """Law 3, whether the driver had come to it or not."""
    await rig.provider.increase_size("g", 1)
    rig.line.cut[Verb.CREATE] = cut
    await rig.turn()
    rig.line.is_here = False
    await rig.settle(5)
    rig.line.is_here = True
    await rig.settle(10)
    assert (await rig.states(), len(rig.alive())) == (["running"], 1)
    assert len(rig.cloud.ledger()) == 1
