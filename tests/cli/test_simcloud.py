"""`cloudgraft simcloud` as a user runs it: a process that can be killed, and finds everything again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.error
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.sdk import DeadlineError, OutOfStockError
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.options import SimulatedOptions
from tests.conditions import until
from tests.simcloud.sim_process import SimcloudProcess, call
from tests.simcloud.sim_world import a_spec


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cloudgraft.cli", "simcloud", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_kill_9_in_the_middle_of_the_work_loses_no_machine_that_was_answered(tmp_path: Path) -> None:
    """Whatever the cloud has answered is in its ledger; of what it has not, the ledger has each once or not at all."""
    db = tmp_path / "cloud.db"
    answered: dict[str, str] = {}
    with SimcloudProcess(db) as process:

        def create(worker: int) -> None:
            for number in range(10_000):
                name = f"m-{worker}-{number}"
                try:
                    made = call(process.url, "POST", "/machines", {"name": name, "token": name, "shape": "small"})
                except (OSError, urllib.error.URLError, ValueError):
                    return
                answered[name] = made["machineId"]

        workers = [threading.Thread(target=create, args=(worker,)) for worker in range(4)]
        for worker in workers:
            worker.start()
        await until(lambda: len(answered) >= 60)
        process.kill()
        for worker in workers:
            worker.join()

    with SimcloudProcess(db) as process:
        booked = process.ledger()
        by_name = {entry["name"]: entry["machineId"] for entry in booked}
        assert len(by_name) == len(booked)
        assert answered.items() <= by_name.items()
        assert len(booked) - len(answered) <= 4
        name = next(iter(answered))
        again = call(process.url, "POST", "/machines", {"name": name, "token": name, "shape": "small"})
        assert again["machineId"] == answered[name]
        assert process.stop() == 0


async def test_the_driver_goes_on_with_a_cloud_that_was_killed_and_came_back(tmp_path: Path) -> None:
    db = tmp_path / "cloud.db"
    with SimcloudProcess(db, "--boot-time", "0s") as process:
        driver = SimulatedDriver(SimulatedOptions(url=process.url, timeout=timedelta(seconds=20)))
        await driver.start()
        made = await driver.create(a_spec("m-1", tags={"a": "b"}))
        process.chaos(create={"lost": {"next": 1}})
        with pytest.raises(DeadlineError):
            await driver.create(a_spec("m-2"))
        process.kill()
        address = process.url.removeprefix("http://")
    with SimcloudProcess(db, "--boot-time", "0s", listen=address):
        listed = await driver.list()
        assert [machine.name for machine in listed] == ["m-1", "m-2"]
        assert (listed[0].machine_id, listed[0].tags) == (made.machine_id, {"a": "b"})
        await driver.delete(made)
        await driver.close()


@pytest.mark.thorough
async def test_its_options_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    options = tmp_path / "options.yaml"
    options.write_text("bootTime: 1h\nquota: 7\nshapes: {huge: {cpu: 64, memory: 256Gi, hourly: 3.2}}\n")
    chaos = tmp_path / "chaos.json"
    chaos.write_text(json.dumps({"stock": {"huge": 0}}))
    arguments = ("--options", str(options), "--chaos", str(chaos), "--boot-time", "0s", "--idempotency", "none")
    with SimcloudProcess(tmp_path / "cloud.db", *arguments) as process:
        driver = SimulatedDriver(SimulatedOptions(url=process.url))
        await driver.start()
        with pytest.raises(OutOfStockError):
            await driver.create(a_spec("m-1", "huge"))
        first, second = [await driver.create(a_spec("m-1")) for _ in range(2)]
        assert first.machine_id != second.machine_id
        assert [machine.state.value for machine in await driver.list()] == ["running", "running"]
        await driver.close()
        # A second one must not write into the same ledger, nor take the same port.
        done = run("--db", str(tmp_path / "cloud.db"), "--listen", "127.0.0.1:0")
        assert (done.returncode, "in use by another simulated cloud" in done.stderr) == (1, True)
        done = run("--db", str(tmp_path / "other.db"), "--listen", process.url.removeprefix("http://"))
        assert (done.returncode, "is another program using it" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--listen", "0.0.0.0:0"), 1, "--insecure"),
        (("--options", "options.yaml"), 1, "options.yaml:2:"),
        (("--boot-time", "5"), 2, "missing unit"),
        (("--kubeconfig", "no-such-file", "--listen", "127.0.0.1:0"), 1, "no-such-file"),
    ],
)
def test_what_cannot_work_is_reported_without_a_traceback(
    arguments: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "options.yaml").write_text("quota: 5\nqota: 6\n")
    files = [str(tmp_path / argument) if argument.endswith((".yaml", "-file")) else argument for argument in arguments]
    done = run("--db", str(tmp_path / "cloud.db"), *files)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
