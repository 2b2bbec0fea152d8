"""Machines of ours are taken in once, whoever looks at the cloud at the same moment (law 11)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import MachineState
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.store.records import State
from tests.engine.engine_rig import Rig, running
from tests.engine.scripted_cloud import Cloud, desired_state, group, lose_journal, stepped


async def test_two_looks_at_once_take_a_machine_in_once(tmp_path: Path) -> None:
    """The engine looks when it applies a configuration, and the cloud's worker whenever it lists."""
    options = SimulatedOptions(list_lag=timedelta(seconds=30), boot_time=timedelta(0))
    async with running(Rig(tmp_path, options=options)) as rig:
        await rig.settle()
        await rig.provider.increase_size("g", 2)
        await rig.settle()
        assert await rig.states() == ["running", "running"]
        tags = rig.records()[0].tags
        await rig.wipe()
        await rig.start()
        assert len(rig.records()) == 2  # and there may be more, for the list shows the past
        rig.place(rig.engine.identity.new_name("g"), tags)
        rig.clock.advance(31)
        observer = rig.engine.workers["sim"].observer
        await asyncio.gather(observer.observe(), observer.observe())
        assert len({record.machine_id for record in rig.records()}) == len(rig.records()) == 3
        assert len(await rig.events("cloud_ready")) == 1


@pytest.mark.parametrize("state", [MachineState.STOPPED, MachineState.PENDING, MachineState.FAILED])
async def test_machines_that_were_found_are_not_given_up_for_what_their_cloud_says(
    tmp_path: Path, state: MachineState
) -> None:
    """Of machines that run, repair would replace a few at a time. A lost journal must not cost them all at once."""
    cloud = Cloud()
    plan = desired_state({"a": cloud}, group())
    async with stepped(tmp_path, plan) as case:
        await case.grow(3)
    lose_journal(tmp_path)
    cloud.shown = lambda machine: replace(machine, state=state)
    async with stepped(tmp_path, plan, clock=case.clock) as case:
        await case.turns(30, 60)
        assert (case.records(State.BOOTING), cloud.deleted) == (3, [])
        cloud.shown = lambda machine: machine
        await case.turns(2)
        assert case.records(State.RUNNING) == 3
