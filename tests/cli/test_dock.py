"""`cloudgraft dock` as a user runs it: the dock, a driver that dials in, and who is connected."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.dock import command
from cloudgraft.sdk.errors import CloudgraftError
from tests.cli.operator_rig import operating
from tests.cli.serve_process import ServeProcess
from tests.conditions import until
from tests.dock.runner.real_hub import KEY
from tests.dock.runner.real_hub import dock as real_dock
from tests.engine.engine_rig import Rig

# With the verb, also where the list of verbs does not have it yet.
PROGRAM = "from cloudgraft.cli import main; main.VERBS.setdefault('dock', ''); main.main()"
DOCK = """\
cluster: test
server: {ops: null}
dock:
  listen: 127.0.0.1:0
  classes: {small: {kind: SimMachineClass, apiVersion: sim.example/v1}}
"""
DRIVER = """\
address: 127.0.0.1:5000
kind: SimMachineClass
apiVersion: sim.example/v1
driver: simulated
options: {bootTime: 1s}
"""


def run(*arguments: object) -> Result:
    """In this process: one of its own takes a second to start."""
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def told_by(result: Result) -> str:
    """What a user reads, also of the errors that the program's main turns into a line."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, CloudgraftError), result.exception
    return f"{result.output}{result.exception}"


@contextmanager
def started(log: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "dock", *map(str, arguments)], stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.timeout(150)
async def test_a_driver_dials_in_and_is_shown_and_both_end_when_told(tmp_path: Path) -> None:
    dock = written(tmp_path / "dock.yaml", DOCK)
    driver = written(tmp_path / "driver.yaml", DRIVER)
    log = tmp_path / "dock.log"
    with started(log, "-c", dock) as hub:
        await until(lambda: "serving drivers" in log.read_text(), what="it serves", seconds=45)
        address = re.search(r"address=(127\.0\.0\.1:\d+)", log.read_text())
        assert address
        with started(tmp_path / "driver.log", "connect", "-c", driver, "--address", address[1]) as connected:
            await until(lambda: "a driver is connected" in log.read_text(), what="it has dialled in", seconds=45)
            shown = await asyncio.to_thread(run, "drivers", "-c", dock)
            assert (shown.exit_code, shown.stderr) == (0, "")
            for word in ("SimMachineClass", "sim.example/v1", "simulated", "v1", "local", "ready"):
                assert word in shown.stdout
            (found,) = json.loads((await asyncio.to_thread(run, "drivers", "-c", dock, "-o", "json")).stdout)["drivers"]
            assert (found["inFlight"], found["lastError"]) == (0, "")
            connected.send_signal(signal.SIGTERM)
            assert connected.wait(30) == 0
        assert (await asyncio.to_thread(run, "drivers", "-c", dock)).stdout == "No driver is connected.\n"
        hub.send_signal(signal.SIGTERM)
        assert hub.wait(30) == 0


LAB = r"""#!/bin/bash
machine() { printf '{"name": "%s", "machineID": "vm-%s"}' "$1" "$1"; }
case "$1" in
  create) touch "made-$CLOUDGRAFT_NAME"; printf '{"machine": %s}' "$(machine "$CLOUDGRAFT_NAME")" ;;
  list) for file in made-*; do printf '{"machines": [%s]}' "$(machine "${file#made-}")"; done ;;
esac
"""


@pytest.mark.timeout(150)
@pytest.mark.thorough
async def test_a_script_is_a_driver_that_dials_in(tmp_path: Path) -> None:
    """The driver of the command line is taken over that of the file, and commands run beside the file."""
    script = written(tmp_path / "lab.sh", LAB)
    script.chmod(0o755)
    commands = ", ".join(f"{verb}: [./lab.sh, {verb}]" for verb in ("create", "delete", "list"))
    about = f"address: 127.0.0.1:1\nkind: {KEY.kind}\napiVersion: {KEY.api_version}\ndriver: simulated\n"
    file = written(tmp_path / "driver.yaml", f"{about}options: {{{commands}, ownership: name}}\n")
    async with real_dock() as own:
        arguments = ("connect", "-c", file, "--driver", "exec", "--address", own.address)
        with started(tmp_path / "driver.log", *arguments) as process:
            await own.connected()
            made = await own.make("m-1")
            assert (made.name, made.machine_id) == ("m-1", "vm-m-1")
            assert (tmp_path / "made-m-1").exists()
            assert await own.names() == ["m-1"]
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.timeout(150)
@pytest.mark.thorough
async def test_serve_has_a_dock_also_where_it_has_no_clouds_of_its_own(tmp_path: Path) -> None:
    """A section `dock` starts the hub. What a changed file cannot change is told; without it nobody gets in."""
    text = DOCK + "providers: [{type: memory}]\n"
    text = text.replace("server: {ops: null}", "server: {listen: '127.0.0.1:0', ops: null}")
    file = written(tmp_path / "cloudgraft.yaml", text)
    with ServeProcess(file) as serving:
        found = serving.wait_for(lambda line: line.get("event") == "serving drivers that dial in")
        assert (await asyncio.to_thread(run, "drivers", "-c", file)).stdout == "No driver is connected.\n"
        driver = written(tmp_path / "driver.yaml", DRIVER)
        with started(tmp_path / "driver.log", "connect", "-c", driver, "--address", found["address"]):
            await asyncio.to_thread(serving.wait_for, lambda line: line.get("event") == "a driver is connected", 45)
            written(file, text.replace("127.0.0.1:0\n", "127.0.0.1:1\n").replace("dock:", "dock:\n  heartbeat: 9s"))
            serving.send(signal.SIGHUP)
            fixed = "a change of these needs a restart: dock.listen, dock.heartbeat"
            await asyncio.to_thread(serving.wait_for, lambda line: line.get("event") == fixed)
            written(file, "cluster: test\nproviders: [{type: memory}]\n")
            serving.send(signal.SIGHUP)
            await asyncio.to_thread(serving.wait_for, lambda line: "a driver is gone" in line.get("event", ""))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (DRIVER, "good (driver simulated for SimMachineClass (sim.example/v1))"),
        (DRIVER.replace("bootTime", "bootTmie"), "did you mean bootTime"),
        (DRIVER.replace("kind:", "kin:"), "kind"),
        (DRIVER.replace("simulated", "simulatd"), "simulated"),
        (DRIVER.replace("127.0.0.1", "dock.example"), "TLS"),
        ("- a\n", "keys and values"),
    ],
    ids=["good", "option", "key", "driver", "plain text", "no mapping"],
)
def test_the_file_of_a_driver_is_checked(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path / "driver.yaml", text)
    checked = run("connect", "-c", path, "--check")
    assert told in told_by(checked)
    assert (checked.exit_code == 0) == ("good" in told)


def test_the_file_of_a_dock_is_checked(tmp_path: Path) -> None:
    good = run("-c", written(tmp_path / "dock.yaml", DOCK), "--check")
    assert (good.exit_code, good.output.partition(": ")[2]) == (0, "good (0 drivers, 0 engines, 1 machine classes)\n")
    without = written(tmp_path / "no.yaml", "cluster: test\nproviders: [{type: memory}]\n")
    assert "has no section dock" in told_by(run("-c", without))
    assert run().exit_code == 2, "without a file it is a mistake of usage"


def test_without_a_dock_there_is_nobody_to_ask(tmp_path: Path) -> None:
    asked = run("drivers", "-c", written(tmp_path / "dock.yaml", DOCK))
    assert asked.exit_code == 1
    assert asked.stderr.startswith("error: ")


async def test_a_server_without_a_dock_says_so(tmp_path: Path) -> None:
    async with operating(Rig(tmp_path)) as operator:
        asked = await operator.run(command, "drivers", code=1)
    assert asked.stderr == "error: this server has no dock: there is no section `dock` in its file\n"
