"""A long outage costs patience, never machines: time counts only while lists and the cluster can be seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings
from cloudgraft.simcloud.options import SimulatedOptions
from tests.engine.engine_rig import Rig, fake, running

SETTINGS = EngineSettings(create_deadline=timedelta(seconds=20))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """Machines that boot in 15 s, of 20 that they may take."""
    options = SimulatedOptions(boot_time=timedelta(seconds=15), delete_time=timedelta(seconds=5))
    async with running(Rig(tmp_path, settings=SETTINGS, options=options)) as rig:
        yield rig


async def five_booting(rig: Rig) -> list[str]:
    await rig.provider.increase_size("g", 5)
    await rig.settle(2, seconds=2)
    assert await rig.states() == ["booting"] * 5
    return rig.alive()


async def test_a_list_outage_deletes_no_machine_that_boots_meanwhile(rig: Rig) -> None:
    machines = await five_booting(rig)
    rig.chaos(list={"unavailable": 1})
    await rig.settle(100)
    assert (await rig.states(), rig.alive()) == (["booting"] * 5, machines)
    rig.chaos()
    await rig.settle(2)
    assert (await rig.states(), rig.alive()) == (["running"] * 5, machines)


async def test_a_restart_an_hour_later_during_an_outage_deletes_no_machine(rig: Rig) -> None:
    machines = await five_booting(rig)
    rig.chaos(list={"unavailable": 1})
    await rig.engine.close()
    rig.clock.advance(3600)
    await rig.crash()
    await rig.start()
    await rig.settle(100)
    assert (await rig.states(), rig.alive()) == (["booting"] * 5, machines)
    rig.chaos()
    await rig.settle(3)
    assert (await rig.states(), rig.alive()) == (["running"] * 5, machines)


async def test_lists_that_fail_now_and_then_do_not_keep_a_dead_boot_for_ever(rig: Rig) -> None:
    rig.chaos(neverBoots=1)
    await five_booting(rig)
    for _ in range(5):
        rig.chaos(neverBoots=1, list={"unavailable": {"next": 1}})
        await rig.settle(3)
    await rig.settle(2)
    assert rig.alive() == []
    assert {i.error.code for i in await rig.shown() if i.error} == {"deadline"}


async def test_what_the_autoscaler_deletes_early_in_an_outage_is_deleted_at_once(rig: Rig) -> None:
    await five_booting(rig)
    await rig.settle(3)
    rig.chaos(list={"unavailable": 1})
    await rig.turn(10)
    await rig.provider.delete_nodes("g", [fake(i) for i in (await rig.shown())[:2]])
    await rig.turn()
    assert len(rig.alive()) == 3


async def test_what_it_deletes_late_in_an_outage_waits_for_a_list(rig: Rig) -> None:
    await five_booting(rig)
    await rig.settle(3)
    rig.chaos(list={"unavailable": 1})
    await rig.settle(60)
    await rig.provider.delete_nodes("g", [fake(i) for i in (await rig.shown())[:2]])
    await rig.settle(3)
    assert len(rig.alive()) == 5, "its id may be another machine's by now"
    rig.chaos()
    await rig.settle(3)
    assert len(rig.alive()) == 3
