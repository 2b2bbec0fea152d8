"""The kit's rules for drivers on `exec`, with the scripts of the examples and their make-believe cloud."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions
from cloudgraft.sdk.driver import Driver, Idempotency, MachineSpec
from cloudgraft.sdk.errors import AuthenticationError, InvalidArgumentError, QuotaExceededError, UnavailableError
from tests.conformance.judging import judged
from tests.conformance.test_driver_processes import NO_LOSS, NO_PROCESS, NO_TWINS, passed
from tests.drivers.exec.exec_scripts import EXAMPLES, nothing_left
from tests.plugins.node_program import node_binary

OFFERS = ("shapes_are_sane", "prices_are_sane")
PAGES = "a_list_has_every_page"
COMMANDS = {
    "bash": [str(EXAMPLES / "lab.sh")],
    "Python": [sys.executable, str(EXAMPLES / "lab.py")],
    "Node": [node_binary(), str(EXAMPLES / "lab.mjs")],
}
# Far more than anything takes here: a slow computer must not fail.
SETTINGS = DriverSettings(
    machine={"size": "small"},
    wrong_machine={"size": "huge"},
    at_once=3,
    interruptions=4,
    late=timedelta(seconds=0.5),
    secrets=["the-lab-token-7"],
)
# What is most easily wrong in a script; the whole of it is `thorough`, for a script is some processes per call.
MOST = ("marks_come_back",)


class Lab:
    """One make-believe cloud."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.directory, self.command = directory, command
        self.home = directory / "lab"
        self.home.mkdir()
        self.token = directory / "token"
        self.token.write_text("the-lab-token-7\n")
        (self.home / "token").write_text("the-lab-token-7\n")

    def driver(self, home: str = "lab", **options: Any) -> ExecDriver:
        given: dict[str, Any] = {
            "create": self.command,
            "delete": self.command,
            "list": self.command,
            "idempotency": Idempotency.UNIQUE_NAME,
            "working_directory": self.directory,
            "env": {"LABCTL_HOME": home},
            "env_files": {"LABCTL_TOKEN": self.token},
            **options,
        }
        return ExecDriver(ExecOptions(**given))

    def troubled(self, trouble: Trouble) -> Driver | None:
        match trouble:
            case Trouble.QUOTA:
                return self._with("quota", "0")
            case Trouble.AWAY:
                return self._with("broken", "")
            case Trouble.AUTHENTICATION:
                wrong = self.directory / "wrong-token"
                wrong.write_text("another")
                return self.driver(env_files={"LABCTL_TOKEN": wrong})
        return None

    def _with(self, file: str, content: str) -> Driver:
        home = self.directory / file
        home.mkdir(exist_ok=True)
        (home / file).write_text(content)
        return self.driver(home=file)


@pytest.mark.thorough
@pytest.mark.timeout(300)
async def test_the_bash_example_keeps_every_rule_for_drivers(tmp_path: Path) -> None:
    lab = Lab(tmp_path, COMMANDS["bash"])
    async with nothing_left(tmp_path):
        report = await judged(lab.driver, replace(SETTINGS, troubled=lab.troubled))
    passed(report, NO_LOSS, NO_PROCESS, NO_TWINS, PAGES, *OFFERS)


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=() if name == "bash" else pytest.mark.thorough) for name in COMMANDS]
)
async def test_the_examples_keep_the_rules_that_are_most_easily_broken(tmp_path: Path, language: str) -> None:
    lab = Lab(tmp_path, COMMANDS[language])
    async with nothing_left(tmp_path):
        report = await judged(lab.driver, SETTINGS, only=MOST)
    assert not report.left_behind


@pytest.mark.parametrize(
    "language", [pytest.param(name, marks=() if name == "Python" else pytest.mark.thorough) for name in COMMANDS]
)
async def test_the_examples_tell_trouble_by_its_name(tmp_path: Path, language: str) -> None:
    lab = Lab(tmp_path, COMMANDS[language])
    for trouble, right in (
        (Trouble.QUOTA, QuotaExceededError),
        (Trouble.AUTHENTICATION, AuthenticationError),
        (Trouble.AWAY, UnavailableError),
    ):
        driver = lab.troubled(trouble)
        assert driver is not None
        with pytest.raises(right, match="labctl: "):
            await driver.create(MachineSpec(name="a", group="pool"))
    with pytest.raises(InvalidArgumentError, match="there is no size huge"):
        await lab.driver().create(MachineSpec(name="a", group="pool", settings={"size": "huge"}))
