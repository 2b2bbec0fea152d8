"""The IPMI one-liners of the how-to, against a real BMC's protocol: ipmi_sim and ipmitool, where they are installed."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudgraft.drivers.hosts.driver import PowerState
from cloudgraft.drivers.static.options import Host
from cloudgraft.sdk.driver import MachineState
from cloudgraft.sdk.errors import DeadlineError
from tests.conditions import until
from tests.drivers.exec.exec_scripts import script
from tests.drivers.static.static_machines import spec, static_driver
from tests.needs import needs_programs

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "switch-your-own-machines-on-and-off.md"
PASSWORD = "sesame-open-7"
CHASSIS = """
while [ $# -gt 0 ] && [ "$1" != get ] && [ "$1" != set ]; do shift; done
case "$*" in
  "get power") [ -e power-is-on ] && echo power:1 || echo power:0 ;;
  "set power 1") touch power-is-on ;;
  "set power 0" | "set shutdown 1") rm -f power-is-on ;;
esac
"""
LAN = """
name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{script} 0x20"
  user 2 true "admin" "{password}" admin 10 md5 straight
"""
EMULATED = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n"


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def bmc(directory: Path, port: int) -> AsyncIterator[None]:
    """A simulated management controller whose machine is on when a file is there."""
    (directory / "state").mkdir()
    chassis = script(directory, f"cd {directory}\n{CHASSIS}", "chassis.sh")
    (directory / "lan.conf").write_text(LAN.format(port=port, script=chassis, password=PASSWORD))
    (directory / "sim.emu").write_text(EMULATED)
    arguments = ("-c", "lan.conf", "-f", "sim.emu", "-s", "state", "-n")
    nothing = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        "ipmi_sim", *arguments, cwd=directory, stdin=nothing, stdout=nothing, stderr=nothing
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


def one_liners(port: int) -> dict[str, Any]:
    """As the page has them, but for the port, and for the cipher suite that the simulator knows."""
    block = re.search(r"### IPMI.*?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    text = block[1].replace("ipmitool -I lanplus", f"ipmitool -I lanplus -p {port} -C 3")
    found = yaml.safe_load(text)
    return {"power_on": found["powerOn"], "power_off": found["powerOff"], "power_state": found["powerState"]}


@needs_programs("ipmi_sim", "ipmitool")
@pytest.mark.thorough
async def test_the_ipmi_one_liners_switch_a_machine_on_and_off(tmp_path: Path) -> None:
    (tmp_path / "ipmi").write_text(f"{PASSWORD}\n")
    port, host = free_udp_port(), Host(id="m1", vars={"bmc": "127.0.0.1"})
    options: dict[str, Any] = {
        **one_liners(port),
        "machines": [host],
        "env_files": {"IPMI_PASSWORD": tmp_path / "ipmi"},
    }
    driver = static_driver(tmp_path, **options)
    async with bmc(tmp_path, port):

        async def answers() -> bool:
            return await driver._switch.state(host) is PowerState.OFF

        await until(answers, what="the controller answers")
        machine = await driver.create(spec("a"))
        assert (tmp_path / "power-is-on").exists()
        assert [one.state for one in await driver.list()] == [MachineState.RUNNING]
        await driver.delete(machine)
        assert not (tmp_path / "power-is-on").exists()
        assert await driver.list() == []
        (tmp_path / "ipmi").write_text("a-wrong-password\n")
        with pytest.raises(DeadlineError) as caught:
            await driver._switch.on(host, spec("b"), is_first=True)
        assert "wrong-password" not in str(caught.value)
