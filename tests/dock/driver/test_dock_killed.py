"""kill -9 in mid-create, of the driver and of the dock: one machine in the cloud's ledger each time (law 3)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloudgraft.dock.driver import DockDriver
from cloudgraft.engine.provider import EngineProvider
from tests.conditions import until
from tests.dock.driver.connected_driver import CLASS, CONNECT, KEY, dock_options
from tests.engine.scripted_cloud import desired_state, group, live
from tests.simcloud.sim_process import SimcloudProcess

DOCK = "from cloudgraft.cli.dock import command; command()"


class Program:
    """A process that can be killed and started again."""

    def __init__(self, code: str, file: Path) -> None:
        self._command = [sys.executable, "-c", code, "-c", str(file)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def programs(directory: Path, url: str) -> Iterator[tuple[str, dict[str, Program]]]:
    """The dock's address, the dock and the driver."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    said = {"kind": KEY.kind, "apiVersion": KEY.api_version}
    dock, driver = directory / "dock.yaml", directory / "driver.yaml"
    section = {"listen": address, "classes": {CLASS: said}}
    dock.write_text(json.dumps({"cluster": "t", "server": {"ops": None}, "dock": section}))
    options = {"url": url, "idempotency": "none"}
    driver.write_text(json.dumps({**said, "address": address, "driver": "simulated", "options": options}))
    started = {"dock": Program(DOCK, dock), "driver": Program(CONNECT, driver)}
    try:
        yield address, started
    finally:
        for program in started.values():
            program.kill()


@pytest.mark.timeout(240)
@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["driver", "dock"])
async def test_what_is_killed_in_mid_create_costs_no_second_machine(tmp_path: Path, victim: str) -> None:
    """The cloud has made the machine and the driver waits for its answer; create is not idempotent."""
    arguments = ("--idempotency", "none", "--boot-time", "50ms")
    with SimcloudProcess(tmp_path / "cloud.db", *arguments) as cloud, programs(tmp_path, cloud.url) as (address, by):
        driver = DockDriver(dock_options(address=address))
        wanted = group(machine={"shape": "small"})
        async with live(tmp_path, desired_state({"a": driver}, wanted)) as engine:
            provider = EngineProvider(engine)
            await until(lambda: not engine.trouble(), what="the driver has dialled in", seconds=60)
            cloud.chaos(create={"lost": {"next": 1}})
            await provider.increase_size("g", 1)
            await until(lambda: len(cloud.ledger()) == 1, what="the cloud has made it", seconds=40)
            by[victim].kill()
            assert await provider.target_size("g") == 1
            by[victim].start()

            async def runs() -> bool:
                return [instance.state.name for instance in await provider.instances("g")] == ["RUNNING"]

            await until(runs, what="it was found by a list", seconds=90)
            assert len(cloud.ledger()) == 1
