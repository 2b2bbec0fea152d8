"""`cloudgraft serve --check`: problems of file, host and clouds, in one run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cloudgraft.app import trial_machine
from cloudgraft.app.wiring import assemble, check_parts
from cloudgraft.cli.main import cloudgraft
from cloudgraft.cli.serve import command
from cloudgraft.config import load
from cloudgraft.sdk.driver import Machine, MachineSpec
from cloudgraft.sdk.errors import DeadlineError, UnavailableError
from cloudgraft.service.metrics import ServiceMetrics
from cloudgraft.simcloud.chaos import Chaos, Span
from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.driver import SimulatedDriver
from cloudgraft.simcloud.http.server import HttpServer
from cloudgraft.simcloud.options import SimulatedOptions
from cloudgraft.simcloud.records import Page, SimMachine
from tests.conditions import until


def check(file: Path, *more: str) -> Result:
    return CliRunner().invoke(command, ["-c", str(file), "--check", *more])


def written(directory: Path, text: str) -> Path:
    file = directory / "f.yaml"
    file.write_text(text)
    return file


# -- offline -----------------------------------------------------------------------------------------------------------

MISSING = """\
cluster: prod
clouds:
  script: {driver: exec, create: ./nosuch, delete: no-such-program, list: ./f.yaml, envFiles: {T: nowhere/t}}
  child: {driver: plugin, command: [./nosuch]}
  sim: {driver: simulated, stateFile: nowhere/x.db}
  pve:
    driver: proxmox
    url: https://pve:8006
    user: a@pve!t
    region: r
    tokenFile: tokn
    shapes: {s: {cpu: 2, memory: 4Gi}}
nodeGroups:
  - {id: a, cloud: sim, maxSize: 3, machine: {shape: nosuch}}
  - {id: b, cloud: sim, maxSize: 3, shapes: [small, medum]}
  - {id: c, cloud: pve, maxSize: 3, machine: {shape: t, template: 1}}
"""
FOUND = {
    "clouds.script.create": "there is no file",
    "clouds.script.delete": "there is no program 'no-such-program' in PATH",
    "clouds.script.list": "chmod +x",
    "clouds.script.envFiles.T": "no such file",
    "clouds.child.command[0]": "no such file",
    "clouds.sim.stateFile": "no such directory",
    "clouds.pve.tokenFile": "did you mean token?",
    "nodeGroups[0].machine.shape": "cloud sim has no machine type nosuch (there is: gpu, large, medium, small)",
    "nodeGroups[1].shapes[1]": "did you mean medium?",
    "nodeGroups[2].machine.shape": "cloud pve has no machine type t (there is: s)",
}


@pytest.mark.parametrize("wrong", ["", "server: {listen: 8386}\n"], ids=["good file", "wrong file"])
def test_missing_files_programs_and_machine_types_are_reported_with_lines(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "token").touch()
    done = check(written(tmp_path, MISSING + wrong))
    lines = done.stderr.removeprefix("error: ").splitlines()
    found = {line.split(": ")[1]: line for line in lines}
    assert list(found) == [*FOUND, *(["server.listen"] if wrong else [])]
    assert done.exit_code == 1
    for key, text in FOUND.items():
        assert text in found[key]
        assert found[key].startswith(f"{tmp_path}/f.yaml:")


HIDING = """\
cluster: prod
server: {listen: "0.0.0.0:8086", tls: {cert: a, key: b, ca: c}}
clouds:
  sim: {driver: simulated, wrong: 1}
  script: {driver: exec, create: ./nosuch, delete: no-such-program, list: ./f.yaml, typo: 1}
  child: {driver: plugin, command: [python3, gone.py]}
nodeGroups:
  - {id: a, cloud: sim, maxSize: 3, machine: {shape: nosuch, typo: 1}}
"""
HIDDEN = [
    "clouds.sim.wrong",
    "clouds.script.create",
    "clouds.script.delete",
    "clouds.script.list",
    "clouds.script.typo",
    "clouds.child.command[1]",
    "nodeGroups[0].machine.shape",
    "nodeGroups[0].machine.typo",
]


@pytest.mark.parametrize("has_wrong_tls", [True, False])
def test_no_problem_hides_another(tmp_path: Path, has_wrong_tls: bool) -> None:
    lines = HIDING.splitlines(keepends=True)
    done = check(written(tmp_path, HIDING if has_wrong_tls else "".join([lines[0], *lines[2:]])), "-o", "json")
    keys = [problem["key"] for problem in json.loads(done.stdout)["problems"]]
    assert [key for key in keys if not key.startswith("server.tls.")] == HIDDEN
    assert len(keys) - len(HIDDEN) == (5 if has_wrong_tls else 0)


def test_an_option_of_a_wrong_type_does_not_hide_what_the_driver_misses(tmp_path: Path) -> None:
    cloud = "{driver: exec, create: ./nosuch, delete: no-such-program, list: ./f.yaml, timeouts: long, maxCalls: many}"
    done = check(written(tmp_path, f"cluster: prod\nclouds:\n  script: {cloud}\n"), "-o", "json")
    keys = {problem["key"].removeprefix("clouds.script.") for problem in json.loads(done.stdout)["problems"]}
    assert keys >= {"create", "delete", "timeouts", "maxCalls"}


def test_arguments_that_no_interpreter_opens_are_not_checked(tmp_path: Path) -> None:
    (tmp_path / "there.py").touch()
    for words in ("[python3, there.py, gone.py]", "[python3, -m, gone]", "[sh, gone.sh]", "[env, gone.py]"):
        text = f"cluster: t\nclouds: {{a: {{driver: plugin, command: {words}}}}}\n"
        done = check(written(tmp_path, text + "nodeGroups: [{id: g, cloud: a, maxSize: 1}]\n"))
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "kind", [pytest.param([], id="blocking", marks=pytest.mark.thorough), pytest.param(["--async"], id="async")]
)
def test_the_configuration_of_a_new_driver_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: list[str]
) -> None:
    """Its directory of machines does not exist yet: the driver makes it."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cloudgraft, ["new", "driver", "gen9", *kind]).exit_code == 0
    package = tmp_path / "cloudgraft-gen9"
    info = package / "src/cloudgraft_gen9-0.dist-info"  # as an installation leaves it
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cloudgraft-gen9\nVersion: 0\n")
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    target = project["entry-points"]["cloudgraft.drivers"]["gen9"]
    (info / "entry_points.txt").write_text(f"[cloudgraft.drivers]\ngen9 = {target}\n")
    done = subprocess.run(
        [sys.executable, "-m", "cloudgraft.cli", "serve", "-c", str(package / "cloudgraft.yaml"), "--check"],
        env={**os.environ, "PYTHONPATH": str(info.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (package / "machines").exists()


def test_a_server_starts_although_a_file_of_one_cloud_is_missing(tmp_path: Path) -> None:
    """Law 6: its cloud fails, and the others are served. So only the check refuses it."""
    assert assemble(load(written(tmp_path, MISSING), find=check_parts), ServiceMetrics()).engine is not None


def test_problems_are_json_for_programs(tmp_path: Path) -> None:
    done = check(written(tmp_path, "cluster: t\nserver: {listen: 1}\n"), "-o", "json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["good"], answer["clouds"]) == (1, False, [])
    assert {problem["key"]: problem["line"] for problem in answer["problems"]} == {"providers": 1, "server.listen": 2}


@pytest.mark.parametrize("words", [["--online"], ["--check", "--create-one", "g"], ["-o", "json"]])
def test_options_that_need_others_are_refused(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(command, ["-c", str(tmp_path / "f"), *words])
    assert done.exit_code == 2
    assert "--check" in done.output


# -- online ------------------------------------------------------------------------------------------------------------


class Clouds:
    """Simulated clouds behind real ports."""

    def __init__(self) -> None:
        self.clouds: list[tuple[SimulatedCloud, HttpServer]] = []

    def add(self, **options: Any) -> tuple[SimulatedCloud, str]:
        cloud = SimulatedCloud(SimulatedOptions(boot_time=timedelta(0), delete_time=timedelta(0), **options))
        server = HttpServer(cloud)
        server.start()
        self.clouds.append((cloud, server))
        return cloud, f"http://{server.address}"


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    made = Clouds()
    yield made
    for cloud, server in made.clouds:
        server.stop()
        cloud.close()


def online(directory: Path, urls: dict[str, str], more: str = "") -> Path:
    entries = "".join(f"  {name}: {{driver: simulated, url: '{url}'{more}}}\n" for name, url in urls.items())
    groups = "".join(f"  - {{id: g-{name}, cloud: {name}, maxSize: 3, machine: {{shape: small}}}}\n" for name in urls)
    return written(directory, f"cluster: prod\nclouds:\n{entries}nodeGroups:\n{groups}")


def test_every_cloud_is_asked_and_a_broken_one_hides_no_other(tmp_path: Path, clouds: Clouds) -> None:
    cloud, url = clouds.add()
    file = online(tmp_path, {"good": url, "dead": "http://127.0.0.1:9", "other": url})
    done = check(file, "--online", "-o", "json")
    answers = {answer["cloud"]: answer for answer in json.loads(done.stdout)["clouds"]}
    assert done.exit_code == 1
    assert [name for name, answer in answers.items() if answer["good"]] == ["good", "other"]
    assert "no simulated cloud answers at http://127.0.0.1:9" in answers["dead"]["errors"][0]
    assert answers["good"]["machineTypes"] == ["gpu", "large", "medium", "small"]
    assert answers["good"]["machines"] == 0
    assert not list(cloud.ledger()), "it has created something"


def test_machine_types_that_only_the_cloud_knows_are_compared(tmp_path: Path, clouds: Clouds) -> None:
    file = online(tmp_path, {"a": clouds.add()[1]})
    file.write_text(file.read_text().replace("shape: small", "shape: smal"))
    assert check(file).exit_code == 0  # nothing is known without asking
    done = check(file, "--online")
    assert done.exit_code == 1
    assert f"{file}:5:" in done.stderr
    assert "nodeGroups[0].machine.shape: cloud a has no machine type smal (did you mean small?)" in done.stderr


def test_a_machine_is_created_measured_and_deleted_on_request_only(tmp_path: Path, clouds: Clouds) -> None:
    cloud, url = clouds.add()
    file = online(tmp_path, {"a": url})
    done = check(file, "--online", "--create-one", "g-a")
    assert (done.exit_code, done.stderr.count("deleted at the end")) == (0, 1)
    assert "0s declared, 0.0s to " in done.stdout
    [machine] = list(cloud.ledger())
    assert machine.gone_at is not None
    assert machine.tags["cloudgraft-cluster"] == "check-of-prod"
    refused = check(file, "--online", "--create-one", "g-b")
    assert refused.exit_code == 1
    assert "did you mean g-a?" in refused.stderr


def test_a_declared_delay_that_is_too_short_is_an_error(
    tmp_path: Path, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, url = clouds.add(list_lag=timedelta(hours=1))
    page = cloud.page

    def late(limit: int, cursor: str = "") -> Page[SimMachine]:
        """The first list after the create lacks the machine, and the next one has it."""
        shown = page(limit, cursor)
        if cloud.machines():
            cloud.set_chaos(Chaos(list_lag=Span()))
        return shown

    monkeypatch.setattr(cloud, "page", late)
    done = check(online(tmp_path, {"a": url}), "--online", "--create-one", "g-a")
    assert done.exit_code == 1
    assert "list_delay is 0s, but a list that began " in done.stderr
    cloud.set_chaos(Chaos(list_lag=Span()))
    declared = check(online(tmp_path, {"a": url}, ", listLag: 1s"), "--online", "--create-one", "g-a")
    assert declared.exit_code == 0, declared.output
    assert all(machine.gone_at is not None for machine in cloud.ledger())


async def test_after_ctrl_c_the_machine_is_deleted(tmp_path: Path, clouds: Clouds) -> None:
    cloud, url = clouds.add(list_lag=timedelta(hours=1))  # it would wait for long
    words = ["serve", "-c", str(online(tmp_path, {"a": url})), "--check", "--online", "--create-one", "g-a"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cloudgraft.cli", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await until(lambda: bool(cloud.machines()), what="the machine")
    process.send_signal(signal.SIGINT)
    _, stderr = await process.communicate()
    assert (process.returncode, cloud.machines()) == (128 + signal.SIGINT, [])
    assert b"interrupted" in stderr


# -- failed creates ----------------------------------------------------------------------------------------------------


def raise_after(monkeypatch: pytest.MonkeyPatch, error: Exception, *, creates: bool = True) -> None:
    """Makes the driver one that creates the machine, or does not, and raises ``error``."""
    create = SimulatedDriver.create

    async def failing(self: SimulatedDriver, spec: MachineSpec) -> Machine:
        if creates:
            await create(self, spec)
        raise error

    monkeypatch.setattr(SimulatedDriver, "create", failing)
    monkeypatch.setattr(trial_machine, "_MARGIN", 0.2)


def test_a_machine_that_the_driver_denies_is_deleted_and_reported(
    tmp_path: Path, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, url = clouds.add()
    raise_after(monkeypatch, UnavailableError("503 from the proxy"))
    done = check(online(tmp_path, {"a": url}), "--online", "--create-one", "g-a")
    [machine] = list(cloud.ledger())
    assert machine.gone_at is not None
    assert done.exit_code == 1
    assert "create failed: 503 from the proxy; with UnavailableError the driver says that nothing was done" in (
        done.stderr
    )
    assert f"but the machine {machine.name} is there" in done.stderr


def test_an_honest_refusal_is_only_a_failed_create(
    tmp_path: Path, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = clouds.add()
    raise_after(monkeypatch, UnavailableError("not now"), creates=False)
    done = check(online(tmp_path, {"a": url}), "--online", "--create-one", "g-a", "-o", "json")
    [answer] = json.loads(done.stdout)["clouds"]
    assert (done.exit_code, answer["errors"]) == (1, ["create failed: not now"])


def test_a_machine_that_cannot_be_cleaned_up_is_named(
    tmp_path: Path, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud, url = clouds.add()
    raise_after(monkeypatch, UnavailableError("503"))
    monkeypatch.setattr(trial_machine, "_PATIENCE", 0.2)

    async def refused(_: SimulatedDriver, machine: Machine) -> None:
        raise UnavailableError(f"{machine.name} stays")

    monkeypatch.setattr(SimulatedDriver, "delete", refused)
    file = online(tmp_path, {"a": url}, ", engine: {deleteTimeout: 100ms}")
    done = check(file, "--online", "--create-one", "g-a")
    [machine] = cloud.machines()
    assert done.exit_code == 1
    assert f"the machine {machine.name} may still exist" in done.stderr


@pytest.mark.parametrize("creates", [True, False], ids=["created", "not created"])
def test_a_lost_answer_is_settled_by_list_and_no_error_of_the_driver(
    tmp_path: Path, clouds: Clouds, monkeypatch: pytest.MonkeyPatch, creates: bool
) -> None:
    cloud, url = clouds.add()
    raise_after(monkeypatch, DeadlineError("the connection broke"), creates=creates)
    done = check(online(tmp_path, {"a": url}), "--online", "--create-one", "g-a")
    assert done.exit_code == 0, done.output
    assert "warning: cloud a: create gave no certain answer (the connection broke)" in done.stdout
    assert all(machine.gone_at is not None for machine in cloud.ledger())
    assert ("0s declared, 0.0s to " in done.stdout, "inconclusive" in done.stdout) == (creates, not creates)
