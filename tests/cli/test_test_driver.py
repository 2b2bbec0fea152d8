"""`cloudgraft test-driver` on real configuration files: what it says, what it refuses, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.test_driver import command
from tests.conditions import until
from tests.needs import needs_terminal
from tests.simcloud.sim_process import SimcloudProcess

FAST = "bootTime: 10ms, deleteTime: 10ms"
GROUP = "{id: small, cloud: sim, maxSize: 5, machine: {shape: small}}"
PROGRAM = [sys.executable, "-c", "from cloudgraft.cli.test_driver import command; command()"]
FEW = ("--only", "D4")


def write(directory: Path, cloud: str = FAST, *groups: str, more: str = "", driver: str = "simulated") -> str:
    file = directory / "cloudgraft.yaml"
    listed = "\n".join(f"  - {group}" for group in groups or (GROUP,))
    file.write_text(f"cluster: test\nclouds: {{sim: {{driver: {driver}, {cloud}}}}}\nnodeGroups:\n{listed}\n{more}")
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_it_says_what_it_will_create_and_reports_what_holds(tmp_path: Path) -> None:
    done = run("sim", "-c", write(tmp_path), *FEW)
    assert done.exit_code == 0, done.output
    assert "Testing the driver simulated of cloud sim: 4 checks." in done.stderr
    assert "up to 12 machines at the same time, 2 in all, as node group small does (shape=small)" in done.stderr
    assert "Their names begin with conformance-kit1-" in done.stderr
    assert "The driver keeps the contract: 4 checks passed, 0 skipped." in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cloudgraft.yaml"]  # neither journal nor cloud


def test_the_file_beside_it_is_used_and_json_and_junit_are_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run("sim", *FEW, "-o", "json", "--junit", "driver.xml")
    report = json.loads(done.stdout)
    assert (report["passed"], report["server"]) == (True, "simulated")
    assert len(ET.parse(tmp_path / "driver.xml").findall(".//testcase")) == 4


@pytest.mark.thorough
def test_a_cloud_that_loses_answers_is_tried_through_a_proxy(tmp_path: Path) -> None:
    done = run("sim", "-c", write(tmp_path), "--only", "D37", "-o", "json")
    last = json.loads(done.stdout)["results"][-1]
    assert (last["check"], last["status"]) == ("a_lost_answer_is_an_unknown_outcome", "passed")


def test_an_inconclusive_check_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    done = run("sim", "-c", write(tmp_path, f"{FAST}, quota: 0"), *FEW)
    assert done.exit_code == 3, done.output
    assert "the cloud refused number 1" in done.stdout


@pytest.mark.parametrize(
    ("file", "arguments", "message"),
    [
        ({}, ("rack",), "the file has no cloud named rack; its section `clouds` has: sim"),
        ({}, ("sim", "--group", "large"), "cloud sim has no node group large; it has: small"),
        ({}, ("sim", "--quick", "--only", "D4"), "--quick is a choice of checks"),
        ({}, ("sim", "--only", "nonsense"), "no check and no rule for drivers with the name nonsense"),
        ({}, ("sim", "--proxy-option", "nope"), "cloud sim has no option nope"),
        ({"cloud": f"{FAST}, engine: {{observeOnly: true}}"}, ("sim",), "the file says observeOnly for cloud sim"),
        ({"more": "guards: {maxMachines: 3}"}, ("sim",), "guards.maxMachines allows 3 machines"),
        (
            {"driver": "dock", "cloud": "kind: lab", "more": "dock: {listen: 127.0.0.1:0}"},
            ("sim",),
            "dials in to the dock of a running server",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(
    tmp_path: Path, file: dict[str, str], arguments: tuple[str, ...], message: str
) -> None:
    done = run(*arguments, "-c", write(tmp_path, **file))
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())


def test_one_of_several_groups_must_be_chosen(tmp_path: Path) -> None:
    other = GROUP.replace("id: small", "id: tiny")
    file = write(tmp_path, FAST, GROUP, other)
    done = run("sim", "-c", file, *FEW)
    assert (done.exit_code, "choose one with --group: small, tiny" in done.stderr) == (2, True)
    assert "as node group tiny does" in run("sim", "-c", file, *FEW, "--group", "tiny").stderr


def test_a_guard_bounds_the_machines(tmp_path: Path) -> None:
    done = run("sim", "-c", write(tmp_path, more="guards: {maxMachines: 6}"), *FEW)
    assert "up to 6 machines at the same time" in done.stderr


LAB = """\
#!/bin/sh
exit 210
"""


def test_real_machines_need_a_yes_where_nobody_can_be_asked(tmp_path: Path) -> None:
    program = tmp_path / "lab"
    program.write_text(LAB)
    program.chmod(0o755)
    file = write(tmp_path, f"create: [{program}], delete: [{program}], list: [{program}]", driver="exec")
    done = run("sim", "-c", file, *FEW)
    assert done.exit_code == 2, done.output
    assert "nothing was created: say --yes" in done.stderr
    assert run("sim", "-c", file, *FEW, "--yes").exit_code == 1  # it begins, and the cloud is away


@pytest.mark.thorough
async def test_ctrl_c_deletes_what_was_made_and_says_so(tmp_path: Path) -> None:
    with SimcloudProcess(tmp_path / "cloud.db", "--list-lag", "1s") as cloud:
        file = write(tmp_path, f'url: "{cloud.url}", listLag: 1s')
        begun = await asyncio.create_subprocess_exec(*PROGRAM, "sim", "-c", file, stderr=subprocess.PIPE)
        await until(lambda: bool(cloud.ledger()), what="a machine was created")
        begun.send_signal(signal.SIGINT)
        errors = (await begun.communicate())[1].decode()
        assert begun.returncode == 128 + signal.SIGINT, errors
        assert "interrupted: deleting what the kit made" in errors
        assert "what it made is deleted" in errors
        assert all(entry["deletes"] for entry in cloud.ledger())


@needs_terminal
def test_a_terminal_has_a_bar_and_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "lab"
    program.write_text(LAB)
    program.chmod(0o755)
    file = write(tmp_path, f"create: [{program}], delete: [{program}], list: [{program}]", driver="exec")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as screen:
        begun = subprocess.Popen([*PROGRAM, "sim", "-c", file, *FEW], stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"Create them?" not in shown:
            shown += screen.read(4096)
        screen.write(b"y\n")
        while True:
            try:
                shown += screen.read(4096)
            except OSError:  # the other side is closed
                break
        assert begun.wait(30) == 1
    assert b"testing" in shown
    assert b"/4" in shown
