"""kill -9 anywhere: no machine is given to two names, and none is lost (laws 2 and 3)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from cloudgraft.sdk.driver import Machine
from tests.drivers.static.static_machines import hosts, spec, static_driver, switched_on

ROOT = Path(__file__).resolve().parents[3]
VICTIM = """
import asyncio, os, signal, sys
from pathlib import Path
from cloudgraft.drivers.hosts.assignments import Assignments
from cloudgraft.sdk.driver import Machine
from tests.drivers.static.static_machines import OFF, ON, hosts, spec, static_driver

verb, point = sys.argv[1:]
die = "kill -9 %d; sleep 300" % os.getpid()
on = {"before switching": f"{die}; {ON}", "after switching": f"{ON}; {die}"}.get(point, ON)
off = {"before switching": f"{die}; {OFF}", "after switching": f"{OFF}; {die}"}.get(point, OFF)
write, replace = Assignments._write, Path.replace
def deadly(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def dying_write(self, taken):
    if point == "before the account is written":
        deadly()
    if point == "in the middle of writing":
        Path.replace = deadly
    write(self, taken)
    if point == "after the account is written":
        deadly()
async def main():
    driver = static_driver(Path.cwd(), power_on=on if verb == "create" else ON, power_off=off, machines=hosts(2))
    if verb == "delete":
        machine = await driver.create(spec("a"))
    Assignments._write = dying_write
    await (driver.create(spec("a")) if verb == "create" else driver.delete(machine))
asyncio.run(main())
"""
POINTS = [
    "before the account is written",
    "in the middle of writing",
    "after the account is written",
    "before switching",
    "after switching",
]
SAMPLE = (("create", "in the middle of writing"), ("create", "after switching"), ("delete", "after switching"))


@pytest.mark.parametrize(
    ("verb", "point"),
    [
        pytest.param(verb, point, marks=() if (verb, point) in SAMPLE else pytest.mark.thorough)
        for verb in ("create", "delete")
        for point in POINTS
    ],
)
async def test_after_a_crash_every_machine_has_one_name_or_is_free(tmp_path: Path, verb: str, point: str) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    victim = await asyncio.create_subprocess_exec(sys.executable, "-c", VICTIM, verb, point, cwd=tmp_path, env=env)
    assert await victim.wait() == -9
    driver = static_driver(tmp_path, machines=hosts(2))
    taken = {machine.name for machine in await driver.list()}
    assert set(switched_on(tmp_path).values()) <= taken, "a machine is on that nobody will ever switch off"
    # What the engine does: it asks again for what it wanted.
    if verb == "create":
        await driver.create(spec("a"))
    else:
        await driver.delete(Machine(name="a", machine_id="host-1"))
        assert await driver.list() == []
        await driver.create(spec("a"))
    await driver.create(spec("b"))
    assert sorted(switched_on(tmp_path).values()) == ["a", "b"]
    assert len({machine.machine_id for machine in await driver.list()}) == 2
