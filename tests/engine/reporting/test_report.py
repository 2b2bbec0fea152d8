"""How things stand: what is told of groups, clouds and guards, and that telling it keeps nobody waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudgraft.engine.groups.specs import EngineSettings, GuardLimits
from cloudgraft.engine.new_records import found
from cloudgraft.engine.operations import pauses
from cloudgraft.engine.reporting.explain import explain
from cloudgraft.engine.reporting.findings import all_findings
from cloudgraft.engine.reporting.report import make_report
from cloudgraft.engine.reporting.report_json import as_json, as_json_in_slices, iso
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import NotFoundError, UnavailableError
from cloudgraft.simcloud.chaos import Chaos, Faults, Odds
from cloudgraft.store.records import Change, Scope
from tests.engine.engine_rig import EPOCH, Rig, group


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    settings = EngineSettings(guards=GuardLimits(max_machines=3, max_creates_per_hour=10))
    groups = (group(min_size=1), group("gpu", machine={"shape": "gpu"}), group("broken", machine={"shape": "none"}))
    made = Rig(tmp_path, groups=groups, settings=settings)
    await made.start()
    yield made
    await made.engine.close()


async def test_a_group_is_told_with_sizes_states_price_and_machines(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    report = await make_report(rig.engine, group="g")
    (told,) = report.groups
    assert (told.id, told.cloud, told.target, told.min_size, told.max_size) == ("g", "sim", 2, 1, 10)
    assert (told.states, told.hourly, told.currency) == ({"running": 2}, "0.02", "EUR")
    assert (told.is_served, told.is_draining, told.left_out, told.paused) == (True, False, "", None)
    assert {m.name for m in told.machines} == set(rig.engine.fleet.groups["g"].machines)
    assert [(m.state, m.age, m.state_age, m.error) for m in told.machines] == [("running", 50.0, 10.0, None)] * 2
    assert all(m.machine_id and m.provider_id for m in told.machines)


async def test_machines_are_listed_only_where_they_are_asked_for_or_failed(rig: Rig) -> None:
    rig.cloud.set_chaos(Chaos(stock={"gpu": 0}))
    await rig.provider.increase_size("g", 1)
    await rig.provider.increase_size("gpu", 1)
    await rig.settle(5)
    groups = {g.id: g for g in (await make_report(rig.engine)).groups}
    assert (groups["g"].machines, groups["g"].is_complete) == ([], False)
    error = groups["gpu"].machines[0].error
    assert error is not None
    assert (error.code, error.error_class) == ("out_of_stock", 1)
    groups = {g.id: g for g in (await make_report(rig.engine, with_machines=True)).groups}
    assert (len(groups["g"].machines), groups["g"].is_complete) == (1, True)


async def test_a_group_that_is_left_out_is_told_with_the_reason(rig: Rig) -> None:
    told = next(g for g in (await make_report(rig.engine)).groups if g.id == "broken")
    assert (told.is_served, "has no machine type 'none'" in told.left_out) == (False, True)


async def test_a_group_that_drains_or_is_paused_is_told_so(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    await pauses.pause(rig.engine, Scope.CLOUD, "sim", "why not")
    rig.groups = (group("gpu", machine={"shape": "gpu"}),)
    rig.engine.reconfigure(rig.desired_state())
    assert (await make_report(rig.engine)).is_config_pending
    await rig.provider.refresh()
    report = await make_report(rig.engine, group="g")
    assert not report.is_config_pending
    assert (report.groups[0].is_draining, report.groups[0].min_size, report.groups[0].max_size) == (True, 0, 1)
    pause = report.groups[0].paused
    assert pause is not None
    assert (pause.scope, pause.name, pause.reason) == ("cloud", "sim", "why not")


async def test_a_cloud_is_told_with_its_health(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    (up,) = (await make_report(rig.engine)).clouds
    assert (up.name, up.driver, up.is_up, up.error, up.is_ready) == ("sim", "SimulatedDriver", True, "", True)
    assert (up.machines_listed, up.machines, up.orphans, up.calls_under_way, up.list_age) == (1, 1, 0, 0, 0.0)
    rig.cloud.set_chaos(Chaos(list=Faults(unavailable=Odds(chance=1.0))))
    await rig.settle(3)
    (down,) = (await make_report(rig.engine)).clouds
    assert (down.is_up, down.error_code, down.list_age) == (False, "unavailable", 30.0)
    assert down.down_since == iso(rig.clock.now() - 20)


async def test_guards_are_told_with_what_is_left(rig: Rig) -> None:
    await rig.provider.increase_size("g", 2)
    await rig.settle(5)
    used = {guard.guard: (guard.used, guard.limit, guard.left) for guard in (await make_report(rig.engine)).guards}
    assert used == {"maxMachines": (2, 3, 1), "maxCreatesPerHour": (2, 10, 8)}


async def test_an_unknown_group_is_refused(rig: Rig) -> None:
    with pytest.raises(NotFoundError, match="there is: broken, g, gpu"):
        await make_report(rig.engine, group="x")


async def test_a_process_that_does_not_lead_says_so(tmp_path: Path) -> None:
    engine = Rig(tmp_path).engine
    report = await make_report(engine, config_trouble="line 3")
    assert (report.is_leader, report.config_trouble) == (False, "line 3")
    assert report.leader_trouble
    assert report.trouble
    with pytest.raises(UnavailableError):
        await make_report(engine, group="g")
    with pytest.raises(UnavailableError):
        await explain(engine, "g")
    await engine.close()


async def test_a_report_is_json_with_camel_case_keys(rig: Rig) -> None:
    await rig.provider.increase_size("g", 1)
    await rig.settle(5)
    report = await make_report(rig.engine, with_machines=True)
    written = await as_json_in_slices(report)
    assert written == as_json(report) == json.loads(json.dumps(written))
    assert {"clusterId", "leader", "configPending"} < set(written)
    assert written["at"] == iso(EPOCH + 50)


@pytest.mark.thorough
async def test_reports_of_a_large_fleet_give_others_their_turn(rig: Rig) -> None:
    """5,000 machines: what a report does is done in slices."""
    spec = rig.engine.fleet.groups["g"].spec
    machines = [Machine(name=f"m{number}", machine_id=f"i{number}") for number in range(5000)]
    records = [found(machine, spec, rig.engine.fleet, rig.clock.now(), is_adopted=True) for machine in machines]
    await rig.engine.writer.write(lambda: Change(machines=records))
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    report = await make_report(rig.engine, with_machines=True)
    assert rounds >= 25
    rounds = 0
    written = await as_json_in_slices(report)
    assert rounds >= 50
    assert len(json.dumps(written)) > 5000 * 100
    rounds = 0
    await all_findings(rig.engine)
    assert rounds >= 25
    running.cancel()
