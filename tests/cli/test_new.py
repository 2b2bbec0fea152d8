"""`cloudgraft new`: the package that it writes installs, passes its own tests, is listed, and serves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.cli.new import command
from cloudgraft.plugins.host.process import PluginSpec
from cloudgraft.plugins.host.remote import PluginProvider, RemoteDriver
from cloudgraft.sdk import MachineSpec, NodeGroup
from cloudgraft.sdk.errors import AlreadyExistsError, InvalidArgumentError, PreconditionError, UnavailableError

pytestmark = pytest.mark.xdist_group("new")  # the packages are installed once


KINDS = ("driver", "async_driver", "provider")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


class Installed:
    """The packages, written by the command and installed by pip into a directory of their own."""

    def __init__(self, base: Path) -> None:
        self.driver, self.async_driver = base / "driver", base / "async-driver"
        self.provider, self.site = base / "provider", base / "site"
        for arguments, directory in (
            (("driver", "my-cloud"), self.driver),
            (("driver", "my-loop", "--async"), self.async_driver),
            (("provider", "acme"), self.provider),
        ):
            result = run(*arguments, "--directory", directory)
            assert result.exit_code == 0, result.output
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
        offline = ("--no-index", "--no-build-isolation", "--no-deps", "--target", str(self.site))
        self.run(*pip, *offline, self.driver, self.async_driver, self.provider)

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        result = subprocess.run(
            [str(part) for part in command],
            env={**os.environ, "PYTHONPATH": str(self.site)},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def plugin(self, package: str, **options: object) -> PluginSpec:
        command = [sys.executable, "-m", package]
        return PluginSpec(name=package, command=command, env={"PYTHONPATH": str(self.site)}, options=options)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("new"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thorough
def test_it_passes_its_own_tests(installed: Installed, kind: str) -> None:
    output = installed.run(sys.executable, "-m", "pytest", "-q", cwd=getattr(installed, kind))
    assert " passed" in output


@pytest.mark.thorough
def test_once_installed_it_is_listed(installed: Installed) -> None:
    found = json.loads(installed.run(sys.executable, "-m", "cloudgraft.cli", "drivers", "-o", "json"))
    listed = {entry["name"]: entry for entry in found}
    assert {key: listed["my-cloud"][key] for key in ("kind", "distribution", "summary", "options", "error")} == {
        "kind": "driver",
        "distribution": "cloudgraft-my-cloud",
        "summary": "Machines in the cloud my-cloud.",
        "options": [{"name": "directory", "required": True}],
        "error": None,
    }
    assert {key: listed["acme"][key] for key in ("kind", "distribution", "summary", "error")} == {
        "kind": "provider",
        "distribution": "cloudgraft-acme",
        "summary": "Node groups of acme.",
        "error": None,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["my-cloud", "my-loop"])
async def test_the_driver_serves_as_a_plugin(installed: Installed, tmp_path: Path, name: str) -> None:
    spec = installed.plugin(f"cloudgraft_{name.replace('-', '_')}", directory=str(tmp_path / "machines"))
    driver = RemoteDriver.plugin(spec)
    await driver.start()
    try:
        made = await driver.create(MachineSpec(name="m-1", group="g", tags={"a": "b"}))
        assert made.provider_id == f"{name}://m-1"
        assert await driver.list() == [made]
    finally:
        await driver.close()


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "name"), [("driver", "my-cloud"), ("async_driver", "my-loop")])
def test_the_driver_keeps_the_contract_as_it_is_written(installed: Installed, kind: str, name: str) -> None:
    config = getattr(installed, kind) / "cloudgraft.yaml"
    test_driver = ("test-driver", name, "-c", config, "--quick", "--yes", "-o", "json")
    report = json.loads(installed.run(sys.executable, "-m", "cloudgraft.cli", *test_driver))
    assert {result["status"] for result in report["results"]} <= {"passed", "skipped"}


@pytest.mark.thorough
def test_the_configurations_of_the_drivers_readme_are_good(installed: Installed, tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (installed.driver / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    whole, as_a_process = (yaml.safe_load(block) for block in blocks)
    for config in (whole, {**whole, **as_a_process}):
        path = tmp_path / "cloudgraft.yaml"
        path.write_text(yaml.safe_dump(config))
        output = installed.run(sys.executable, "-m", "cloudgraft.cli", "serve", "--check", "--config", path)
        assert "good (1 group)" in output


@pytest.mark.thorough
async def test_the_provider_serves_as_a_plugin(installed: Installed) -> None:
    provider = PluginProvider(installed.plugin("cloudgraft_acme", group="pool", maxSize=3))
    await provider.start()
    try:
        assert await provider.node_groups() == [NodeGroup(id="pool", min_size=0, max_size=3)]
        await provider.increase_size("pool", 2)
        assert await provider.target_size("pool") == 2
    finally:
        await provider.close()


@pytest.mark.thorough
def test_run_by_hand_the_package_says_how_to_configure_it(installed: Installed) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed.site)}
    argv = [sys.executable, "-m", "cloudgraft_acme"]
    result = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert '"-m", "cloudgraft_acme"]' in result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_what_it_writes_passes_the_usual_linters(installed: Installed, kind: str) -> None:
    directory = getattr(installed, kind)
    ruff = [sys.executable, "-m", "ruff"]
    installed.run(*ruff, "check", "--isolated", "--line-length", "120", "--select", "E,F,I,UP,B,ANN", cwd=directory)
    installed.run(*ruff, "format", "--isolated", "--line-length", "120", "--check", cwd=directory)


def test_it_says_what_to_do_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("driver", "acme")
    assert result.exit_code == 0
    assert "pip install -e cloudgraft-acme" in result.stdout
    assert "cloudgraft test-driver acme -c cloudgraft-acme/cloudgraft.yaml --quick --yes" in result.stdout
    assert "(BlockingDriver)" in (tmp_path / "cloudgraft-acme/src/cloudgraft_acme/driver.py").read_text()
    assert (tmp_path / "cloudgraft-acme" / "src" / "cloudgraft_acme" / "driver.py").is_file()


def test_it_never_overwrites(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "notes.txt").write_text("precious")
    result = run("provider", "acme", "--directory", target)
    assert isinstance(result.exception, AlreadyExistsError)
    assert [path.name for path in target.iterdir()] == ["notes.txt"]
    (target / "notes.txt").unlink()
    assert run("provider", "acme", "--directory", target).exit_code == 0  # an empty directory is fine
    assert isinstance(run("provider", "acme", "--directory", target).exception, AlreadyExistsError)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("driver", "acme", "--directory", tmp_path / "file" / "below")
    assert isinstance(result.exception, UnavailableError)
    assert "cannot write" in str(result.exception)
    unknown = run("driver", "acme", "--directory", tmp_path / ("x" * 300))
    assert isinstance(unknown.exception, PreconditionError)


@pytest.mark.parametrize("name", ["", "Acme", "my cloud", "my_cloud", "-x", "1st", "a--b", "../x", "a-", "ä"])
def test_a_name_that_cannot_be_a_package_is_refused(tmp_path: Path, name: str) -> None:
    result = run("driver", "--directory", tmp_path / "x", "--", name)
    assert isinstance(result.exception, InvalidArgumentError)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("kind", "name"), [("driver", "simulated"), ("provider", "memory")])
def test_the_name_of_an_installed_one_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    """With both installed, neither could be used."""
    result = run(kind, name, "--directory", tmp_path / "new")
    assert isinstance(result.exception, AlreadyExistsError)
    assert f"a {kind} {name} is installed already, by the package cloudgraft," in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_a_receiver_is_one_file_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "receiver.py"
    assert run("receiver", path).exit_code == 0
    asked = [sys.executable, str(path), "--help"]
    assert "--listen" in subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert isinstance(run("receiver", path).exception, AlreadyExistsError)
