"""The examples of drivers that dial in, as they stand, at the real hub: one in Python, one of 2018, one in Node.js."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cloudgraft.dock.protocol.messages import ClassRef, Key, MachineClass, Secret
from cloudgraft.sdk.driver import Machine
from cloudgraft.sdk.errors import AuthenticationError, CloudgraftError
from tests.conditions import until
from tests.dock.runner.real_hub import SLOW_START, Dock, OneClass, dock
from tests.dock.runner.small_hub import create, delete, read
from tests.plugins.node_program import node_binary

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "dock"
KEY = Key(kind="LabMachineClass", api_version="lab.example/v1")
REF = ClassRef(name="small", revision=3, secret_revision=5)
pytestmark = pytest.mark.timeout(150)  # each is a process, some two
COMMANDS = {
    "lab_driver.py": [sys.executable, str(EXAMPLES / "lab_driver.py")],
    "lab_driver_2018.py": [sys.executable, str(EXAMPLES / "lab_driver_2018.py")],
    "driver.js": [node_binary(), str(EXAMPLES / "node" / "driver.js")],
}


class LabClass(OneClass):
    password = b"open sesame"

    def get(self, name: str, key: Key) -> MachineClass:
        spec = {"size": "large"}
        text = json.dumps({"metadata": {"name": name}, "providerSpec": spec, "secretRef": {"name": "keys"}})
        return MachineClass(name=name, key=key, revision=3, provider_spec=spec, secret="keys", json=text)

    def secret(self, machine_class: MachineClass) -> Secret | None:
        return Secret(name="keys", revision=5, data={"password": self.password})


async def _connected(own: Dock) -> None:
    await until(lambda: own.hub.info(KEY) is not None, what="the example is connected", seconds=SLOW_START)


@contextlib.contextmanager
def program(command: Sequence[str], port: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*command, f"127.0.0.1:{port}", str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)


@pytest.mark.parametrize("name", COMMANDS)
async def test_the_example_makes_lists_and_deletes_machines_until_a_signal(name: str, tmp_path: Path) -> None:
    machines = tmp_path / "machines"
    async with dock(classes=LabClass()) as own:
        hub, port = own.hub, own.port
        with program(COMMANDS[name], port, machines) as process:
            await _connected(own)
            made = await hub.call(KEY, create("m-1", ref=REF))
            assert isinstance(made, Machine)
            assert (made.name, made.provider_id) == ("m-1", "lab://m-1")
            assert "large" in (machines / "m-1").read_text()
            await hub.call(KEY, create("m-1", ref=REF))
            await hub.call(KEY, create("m-2", ref=REF))
            await hub.call(KEY, delete(made, ref=REF))
            found = await hub.call(KEY, read(ref=REF))
            assert isinstance(found, list)
            assert [machine.name for machine in found] == ["m-2"]
            process.send_signal(signal.SIGTERM)
            await until(lambda: process.poll() == 0, what="it ends with code 0")
            await until(lambda: hub.info(KEY) is None)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "error"), [("lab_driver.py", AuthenticationError), ("lab_driver_2018.py", CloudgraftError)]
)
async def test_the_example_takes_its_password_from_the_secret_of_its_class(
    name: str, error: type[CloudgraftError], tmp_path: Path
) -> None:
    classes = LabClass()
    classes.password = b"open barley"
    async with dock(classes=classes) as own:
        hub, port = own.hub, own.port
        with program(COMMANDS[name], port, tmp_path / "machines"):
            await _connected(own)
            with pytest.raises(error) as caught:
                await hub.call(KEY, create("m-1", ref=REF))
            assert "barley" not in caught.value.message
            assert list((tmp_path / "machines").iterdir()) == []


PYTHON = ("lab_driver.py", "lab_driver_2018.py")


@pytest.mark.parametrize("name", ["driver.js", *(pytest.param(name, marks=pytest.mark.thorough) for name in PYTHON)])
async def test_the_example_refuses_names_that_are_paths(name: str, tmp_path: Path) -> None:
    async with dock(classes=LabClass()) as own:
        with program(COMMANDS[name], own.port, tmp_path / "machines"):
            await _connected(own)
            (tmp_path / "outside").write_text("as it was")
            with pytest.raises(CloudgraftError, match=r"not a name for a machine|unexpected ValueError"):
                await own.hub.call(KEY, create("../outside", ref=REF))
            with contextlib.suppress(CloudgraftError):  # refused, or not there
                await own.hub.call(KEY, delete(Machine(name="../outside", machine_id="lab://../outside"), ref=REF))
            assert (tmp_path / "outside").read_text() == "as it was"


async def test_the_example_in_node_comes_back_to_a_hub_that_was_away(tmp_path: Path) -> None:
    async with dock(classes=LabClass()) as first:
        port = first.port
    with program(COMMANDS["driver.js"], port, tmp_path / "machines"):
        for _ in range(2):
            async with dock(classes=LabClass(), port=port) as own:
                await _connected(own)


def test_the_first_example_is_short() -> None:
    lines = (EXAMPLES / "lab_driver.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 45


def test_the_page_shows_the_examples_as_they_are() -> None:
    page = (ROOT / "docs/how-to/write-a-driver-that-dials-in.md").read_text()
    for name in ("lab_driver.py", "lab_driver_2018.py"):
        assert f"```python file={name}\n{(EXAMPLES / name).read_text()}```" in page
