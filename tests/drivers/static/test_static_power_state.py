"""Machines that one owns and whose controllers tell whether they are on: what the list shows, and who is free."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.drivers.static.options import PowerTimeouts
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import DeadlineError, OutOfStockError, UnavailableError
from tests.conditions import until
from tests.drivers.static.static_machines import ON, STATE, hosts, spec, static_driver


async def test_the_list_shows_what_the_controller_says(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, power_state=STATE, power_on="true")
    assert (await driver.create(spec("a"))).state is MachineState.PENDING
    assert [m.state for m in await driver.list()] == [MachineState.PENDING]  # it was switched on just now
    late = static_driver(tmp_path, power_state=STATE, power_on_time=timedelta(0))
    assert [(m.state, m.reason) for m in await late.list()] == [(MachineState.STOPPED, "it is off")]
    (tmp_path / "on-host-1").touch()
    assert [m.state for m in await late.list()] == [MachineState.RUNNING]


async def test_a_machine_that_goes_down_slowly_is_deleting_and_not_free_until_it_is_off(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, power_state=STATE, power_off="touch asked", machines=hosts(1))
    machine = await driver.create(spec("a"))
    await driver.delete(machine)
    assert [m.state for m in await driver.list()] == [MachineState.DELETING]
    with pytest.raises(OutOfStockError):
        await driver.create(spec("b"))
    (tmp_path / "on-host-1").unlink()
    assert await driver.list() == []
    assert (await driver.create(spec("b"))).machine_id == "host-1"


async def test_a_free_machine_that_is_on_is_somebodys_and_not_given_out(tmp_path: Path) -> None:
    (tmp_path / "on-host-1").touch()
    driver = static_driver(tmp_path, power_state=STATE, machines=hosts(2))
    assert (await driver.create(spec("a"))).machine_id == "host-2"
    with pytest.raises(OutOfStockError, match="1 of 2 are taken; host-1 is on already, and is not given out"):
        await driver.create(spec("b"))


async def test_one_dead_controller_does_not_hide_the_others(tmp_path: Path) -> None:
    """Law 6."""
    driver = static_driver(tmp_path, power_state=STATE)
    for name in ("a", "b"):
        await driver.create(spec(name))
    broken = static_driver(tmp_path, power_state=f'[ "$CLOUDGRAFT_HOST_ID" != host-1 ] || exit 7; {STATE}')
    shown = {machine.machine_id: machine for machine in await broken.list()}
    assert shown["host-2"].state is MachineState.RUNNING
    assert "cannot be asked for its state: powerState of host-1 exited with 7" in shown["host-1"].reason
    mute = static_driver(tmp_path, power_state="echo dunno")
    assert "must print on or off as its last word; it printed 'dunno'" in (await mute.list())[0].reason


async def test_a_machine_that_is_off_can_be_deleted_although_its_switch_refuses(tmp_path: Path) -> None:
    """A soft shutdown of what is off is an error to most controllers, and so is ssh to it. It is free all the same."""
    broken = "echo 'Command not supported in present state' >&2; exit 1"
    driver = static_driver(tmp_path, power_state=STATE, power_off=broken, power_on_time=timedelta(0), machines=hosts(1))
    machine = await driver.create(spec("a"))
    with pytest.raises(DeadlineError, match="not supported in present state"):
        await driver.delete(machine)  # it is on
    (tmp_path / "on-host-1").unlink()
    await driver.delete(machine)
    assert await driver.list() == []
    assert (await driver.create(spec("b"))).machine_id == "host-1"


async def test_a_machine_that_may_still_come_up_is_not_taken_for_off(tmp_path: Path) -> None:
    driver = static_driver(tmp_path, power_state=STATE, power_on="true", power_off="exit 1", machines=hosts(1))
    machine = await driver.create(spec("a"))
    with pytest.raises(DeadlineError):
        await driver.delete(machine)
    assert [m.state for m in await driver.list()] == [MachineState.PENDING]


async def test_a_machine_that_ignores_its_switch_is_told_again(tmp_path: Path) -> None:
    """A soft shutdown in the middle of a boot is lost. What is shown as deleting is not deleted again."""
    options = {"power_state": STATE, "power_off": "echo told >>asked", "machines": hosts(1)}
    driver = static_driver(tmp_path, **options, power_off_time=timedelta(0))
    machine = await driver.create(spec("a"))
    await driver.delete(machine)
    [shown] = await driver.list()
    assert (shown.state, shown.reason) == (MachineState.RUNNING, "it was told to switch off, and is still on")
    patient = static_driver(tmp_path, **options)
    assert [m.state for m in await patient.list()] == [MachineState.DELETING]
    await driver.delete(shown)
    assert (tmp_path / "asked").read_text() == "told\ntold\n"
    with pytest.raises(OutOfStockError):
        await driver.create(spec("b"))
    (tmp_path / "on-host-1").unlink()
    assert await driver.list() == []


@pytest.mark.parametrize("state", [STATE, None, "exit 7"], ids=["can tell", "cannot tell", "controller is dead"])
async def test_a_machine_that_did_not_come_on_has_failed(tmp_path: Path, state: str | None) -> None:
    """Law 7: once it is in the list nobody tries again, so the autoscaler must hear of it soon."""
    soon = {"power_on_time": timedelta(0), "timeouts": PowerTimeouts(power_on=timedelta(seconds=0.5))}
    driver = static_driver(tmp_path, power_on="exit 1", machines=hosts(1), power_state=state and STATE, **soon)
    with pytest.raises(DeadlineError):
        await driver.create(spec("a"))
    patient = static_driver(tmp_path, power_state=state, machines=hosts(1))
    assert [m.state for m in await patient.list()] == [MachineState.PENDING]
    late = static_driver(tmp_path, power_state=state, machines=hosts(1), **soon)

    async def failed() -> bool:
        return [m.state for m in await late.list()] == [MachineState.FAILED]

    await until(failed)
    assert (await late.list())[0].reason.endswith(": its switch did not say that it went well")
    assert ": powerOn of host-1 " in (await driver.list())[0].reason  # and what it said
    if state != "exit 7":
        (tmp_path / "on-host-1").touch()  # it was only slow
        assert [m.state for m in await late.list()] == [MachineState.RUNNING if state else MachineState.FAILED]
        await patient.create(spec("a"))
        assert [m.state for m in await late.list()] == [MachineState.RUNNING]


async def test_a_machine_is_pending_while_its_switch_takes_its_time(tmp_path: Path) -> None:
    slow = f"touch begun; while [ ! -e go ]; do sleep 0.01; done; {ON}"
    driver = static_driver(tmp_path, power_on=slow, power_on_time=timedelta(0))
    create = asyncio.create_task(driver.create(spec("a")))
    await until((tmp_path / "begun").exists)
    assert [m.state for m in await driver.list()] == [MachineState.PENDING]
    (tmp_path / "go").touch()
    assert (await create).state is MachineState.RUNNING
    assert [m.state for m in await driver.list()] == [MachineState.RUNNING]


async def test_an_account_of_an_older_release_is_read(tmp_path: Path) -> None:
    """One that is being switched off since nobody knows when is told again."""
    entry = {"host": "host-1", "name": "a", "providerID": "static://host-1", "since": "2026-01-31T12:00:00+00:00"}
    (tmp_path / "state.json").write_text(json.dumps({"version": 1, "taken": [{**entry, "stopping": True}]}))
    (tmp_path / "on-host-1").touch()
    driver = static_driver(tmp_path, power_state=STATE)
    assert [(m.name, m.state) for m in await driver.list()] == [("a", MachineState.RUNNING)]
    (tmp_path / "state.json").write_text(json.dumps({"version": 1, "taken": [{**entry, "since": "2026-01-31"}]}))
    with pytest.raises(UnavailableError, match=r"damaged: taken\[0\].since must be a time with its zone"):
        await driver.list()
