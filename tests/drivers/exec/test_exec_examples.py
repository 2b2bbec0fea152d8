"""The examples beside the three of the lab: a person as the cloud; and what the README says of the bash driver."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions
from cloudgraft.sdk.driver import Idempotency, Machine, MachineState
from tests.drivers.exec.exec_scripts import EXAMPLES, SPEC, names, script

PAGE = EXAMPLES.parents[1] / "docs" / "how-to" / "put-a-cloud-behind-three-scripts.md"


@pytest.mark.parametrize("name", ["lab.sh", "labctl"])
def test_the_how_to_has_the_script_of_the_example(name: str) -> None:
    blocks = dict(re.findall(r"^```bash file=(\S+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    assert blocks[name] == (EXAMPLES / name).read_text()


def test_the_bash_driver_has_fewer_than_forty_lines() -> None:
    assert len((EXAMPLES / "lab.sh").read_text().splitlines()) < 40


async def test_an_administrator_may_be_the_cloud(tmp_path: Path) -> None:
    """A create that takes days: it is pending until the administrator says that it runs."""
    command = [str(EXAMPLES / "ask-an-administrator.sh")]
    env = {"ASK_HOME": str(tmp_path / "requests"), "ASK_MAIL": f"tee -a {tmp_path}/mail"}
    driver = ExecDriver(
        ExecOptions(create=command, delete=command, list=command, idempotency=Idempotency.TOKEN, env=env)
    )

    async def shown() -> list[tuple[str, MachineState]]:
        return [(machine.name, machine.state) for machine in await driver.list()]

    assert await shown() == []
    machine = await driver.create(SPEC)
    assert await driver.create(SPEC) == machine  # after a crash, say
    assert (tmp_path / "mail").read_text().count("Set up pool-1 with") == 1
    request = tmp_path / "requests" / "pool-1"
    assert (request / "user-data").read_text() == SPEC.user_data
    assert await shown() == [("pool-1", MachineState.PENDING)]
    (request / "ready").touch()
    [running] = await driver.list()
    assert running == replace(machine, state=MachineState.RUNNING)
    assert running == Machine(name="pool-1", machine_id="pool-1", provider_id="byhand://pool-1", tags=SPEC.tags)
    await driver.delete(running)
    await driver.delete(running)
    assert (tmp_path / "mail").read_text().count("Take pool-1 down") == 1
    assert await shown() == [("pool-1", MachineState.DELETING)]
    for name in names(request, "*"):
        (request / name).unlink()
    request.rmdir()
    assert await shown() == []


async def test_an_administrator_hears_of_it_although_the_mail_was_down(tmp_path: Path) -> None:
    command = [str(EXAMPLES / "ask-an-administrator.sh")]
    mail = script(tmp_path, "[ -e up ] && cat >>mail", "mail.sh")
    env = {"ASK_HOME": str(tmp_path / "requests"), "ASK_MAIL": str(mail)}
    driver = ExecDriver(ExecOptions(create=command, delete=command, list=command, env=env, working_directory=tmp_path))
    await driver.create(SPEC)
    (tmp_path / "up").touch()
    for _ in range(2):
        assert [machine.state for machine in await driver.list()] == [MachineState.PENDING]
    assert (tmp_path / "mail").read_text().count("Set up pool-1 with") == 1
