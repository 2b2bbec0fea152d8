"""Case 40, on the driver's side, for what a class or a group says although it belongs in a secret."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from cloudgraft.dock.protocol.codes import Code
from cloudgraft.dock.protocol.messages import ClassRef
from cloudgraft.dock.runner import ClassData, MachineClassMeta, MachineError, Speech, from_2018
from cloudgraft.sdk import Machine, MachineSpec
from cloudgraft.sdk.errors import AuthenticationError
from cloudgraft.sdk.secrecy import redacted
from tests.conditions import until
from tests.dock.runner.drivers import GatedDriver, running
from tests.dock.runner.small_hub import create, delete, read, small_hub

REF = ClassRef(name="small", revision=3)
PROGRAM = """
import logging, os, signal
from cloudgraft.dock import run
from cloudgraft.sdk import Driver, hide

class Acme(Driver):
    async def start(self):
        hide("tulip-in-the-log")
        logging.getLogger("acme").warning("login with %s failed", "tulip-in-the-log")
        try:
            raise ValueError("sent tulip-in-the-log")
        except ValueError:
            logging.getLogger("acme").exception("it said")
        os.kill(os.getpid(), signal.SIGTERM)
    async def create(self, spec): ...
    async def delete(self, machine): ...
    async def list(self): return []

run(Acme(), address="127.0.0.1:1", kind="Acme", api_version="v1")
"""


class Quoting(GatedDriver):
    """Its cloud's library quotes what it was given."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.keys = keys
        self.error: type[Exception] = AuthenticationError

    async def create(self, spec: MachineSpec) -> Machine:
        await super().create(spec)
        quoted = " and ".join(str(spec.settings[key]) for key in self.keys)
        raise self.error(f"login with {quoted} failed")


@pytest.mark.parametrize("error", [AuthenticationError, RuntimeError])
async def test_what_a_class_names_a_secret_is_in_no_error_and_no_log(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    driver = Quoting("apiToken", "region", "login")
    driver.error = error
    spec = {"apiToken": "tulip-token", "region": "north-east", "login": {"user": "robert", "password": "tulip-word"}}
    async with small_hub() as hub, running(driver, hub.address):
        hub.classes["small"] = (3, {"metadata": {"name": "small"}, "providerSpec": spec})
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=REF))
        message = (await visit.result()).status.message
    assert "tulip" not in message + caplog.text
    assert "north-east" in message + caplog.text, "the rest is told"


async def test_what_a_group_names_a_secret_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with small_hub() as hub, running(Quoting("password"), hub.address):
        hub.classes["small"] = (3, {"metadata": {"name": "small"}, "providerSpec": {"password": "of-the-class"}})
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=REF, settings={"password": "tulip-of-the-group"}))
        assert (await visit.result()).status.message == "login with [secret] failed"
    assert "tulip" not in caplog.text
    assert redacted("tulip-of-the-group") == "tulip-of-the-group", "what is in use nowhere costs nothing"


async def test_what_a_class_named_a_secret_stays_hidden_for_what_still_runs_with_it() -> None:
    """As in case 38: the class was changed in mid-operation."""
    driver = Quoting("password")
    gate = driver.hold("m-1")
    async with small_hub() as hub, running(driver, hub.address):
        hub.classes["small"] = (3, {"metadata": {"name": "small"}, "providerSpec": {"password": "tulip-the-old"}})
        visit = await hub.visit()
        await visit.ask(create("m-1", ref=REF))
        await until(lambda: driver.begun == ["m-1"])
        hub.classes["small"] = (4, {"metadata": {"name": "small"}, "providerSpec": {"password": "tulip-the-new"}})
        for name in ("m-2", "m-3"):  # the second of them with a class that is at hand
            await visit.ask(create(name, ref=replace(REF, revision=4)))
            assert (await visit.result()).status.message == "login with [secret] failed"
        gate.set()
        assert (await visit.result()).status.message == "login with [secret] failed"


class Lab2018:
    """Written to the interface of 2018; every call quotes the class."""

    def __init__(self, data: ClassData) -> None:
        self._data = data

    def create(
        self, machine_class: MachineClassMeta, credentials: str, machine_id: str, machine_name: str
    ) -> tuple[str, str]:
        raise MachineError(Code.INTERNAL, f"refused: {self._data.get_machine_class(machine_class)}")

    def delete(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> None:
        raise MachineError(Code.INTERNAL, f"refused: {self._data.get_machine_class(machine_class)}")

    def list(self, machine_class: MachineClassMeta, credentials: str, machine_id: str) -> Mapping[str, str]:
        raise ValueError(f"refused: {self._data.get_machine_class(machine_class)}")


@pytest.mark.parametrize("speech", [Speech.V0, Speech.V1])
async def test_secret_settings_of_a_class_are_redacted_for_a_driver_of_2018(
    speech: Speech, caplog: pytest.LogCaptureFixture
) -> None:
    """Its calls read the class themselves, as a text."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    async with small_hub() as hub, running(from_2018(Lab2018), hub.address, speech=speech):
        spec = {"size": 2, "secretAccessKey": f"tulip/{speech.value}+key", "credentialsSecretRef": {}}
        hub.classes["small"] = (3, {"metadata": {"name": "small"}, "spec": spec})
        if speech is Speech.V0:
            old = await hub.old_visit()
            told += [(await old.ask("create", class_name="small", name="m-1")).createresponse.error]
            told += [(await old.ask("delete", class_name="small", machine_id="1")).deleteresponse.error]
            told += [(await old.ask("list", class_name="small")).listresponse.error]
        else:
            visit = await hub.visit()
            for asked in (create("m-1", ref=REF), delete(Machine(name="m", machine_id="1"), ref=REF), read(ref=REF)):
                await visit.ask(asked)
                told += [(await visit.result()).status.message]
    assert all(told)
    assert told[0].count("[secret]") == told[1].count("[secret]") == caplog.text.count("[secret]") == 1
    assert "tulip" not in "".join(told) + caplog.text


def test_what_a_driver_logs_itself_is_without_what_was_hidden() -> None:
    """In the log that :func:`cloudgraft.dock.run` sets up, where its program has set up none."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert "WARNING acme: login with [secret] failed" in ended.stderr
    assert "ValueError: sent [secret]" in ended.stderr
    assert "tulip" not in ended.stderr
