"""`cloudgraft drivers` from the outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cloudgraft.cli.drivers import command
from cloudgraft.plugins.registry import Kind, list_all
from cloudgraft.sdk.common import extras
from cloudgraft.sdk.common.extras import install_command
from tests.plugins.fake_packages import DRIVER, write_package


@pytest.fixture
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A good one and one that cannot be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    group = "cloudgraft.drivers"
    write_package(tmp_path, "fake-acme", group=group, points={"acme": "fake_acme:AcmeDriver"}, code=DRIVER)
    write_package(tmp_path, "fake-bad", group=group, points={"bad": "fake_bad:X"}, code="import no_such_library")
    yield
    for name in ("fake_acme", "fake_bad"):
        sys.modules.pop(name, None)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.usefixtures("_packages")
def test_a_table_for_people_says_what_is_there_and_why_something_is_not() -> None:
    shown = run().stdout
    lines = shown.splitlines()
    assert any(all(word in line for word in ("acme", "Machines of ACME [the cloud]")) for line in lines)
    assert any("bad" in line and "cannot be used" in line for line in lines)
    assert any("provider" in line and "memory" in line for line in lines)
    assert "the driver 'bad' of fake-bad 1.0 cannot be imported: ModuleNotFoundError" in shown
    assert "tokenFile" not in shown  # the list is short


@pytest.mark.usefixtures("_packages")
def test_what_needs_an_extra_says_which_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> Distribution:
        if name == "hcloud":
            raise PackageNotFoundError(name)
        return distribution(name)

    monkeypatch.setattr(extras, "distribution", installed)
    shown = run().stdout
    [line] = [line for line in shown.splitlines() if line.split()[:1] == ["hetzner"]]
    assert "A project of Hetzner Cloud." in line
    assert line.rstrip().endswith("extra hetzner, not installed")
    assert f"To install what one needs: {install_command('NAME')}" in shown


SEEN = """
import json
from cloudgraft.plugins.registry import glance_at_all, list_all
print(json.dumps([[(one.name, one.summary, one.lacks_extras) for one in all()] for all in (glance_at_all, list_all)]))
"""


def test_the_list_says_of_ours_what_an_import_says() -> None:
    # In a process of its own: the directories of tests, which are on the path of this one, have names of libraries.
    shown = subprocess.run(
        [sys.executable, "-c", SEEN], stdout=subprocess.PIPE, check=True, cwd="/", timeout=100
    ).stdout
    read, imported = json.loads(shown)
    assert read == imported
    assert all(summary for _, summary, _ in read)


@pytest.mark.usefixtures("_packages")
def test_one_driver_is_described_with_all_that_it_takes() -> None:
    shown = run("acme").stdout
    assert "driver of fake-acme 1.0" in shown
    assert re.search(r"tokenFile +\S+ +must be set", shown)
    assert "driver: acme\n      tokenFile:" in shown
    described = json.loads(run("simulated", "-o", "json").stdout)
    settings = {one["name"]: one for one in described["machineSettings"]}
    assert settings["shape"]["required"]
    assert settings["zone"] == {"name": "zone", "required": False, "type": "text", "default": None, "description": ""}
    lag = next(one for one in described["options"] if one["name"] == "listLag")
    assert lag["default"] == "0s"
    assert lag["description"] == "A list shows the cloud as it was so long ago"


def test_the_example_of_every_driver_has_the_keys_that_it_needs() -> None:
    for listing in list_all():
        described = json.loads(run(listing.name, "-o", "json").stdout)
        if described["error"]:
            continue
        required = {one["name"] for one in described["options"] if one["required"] and "." not in one["name"]}
        section = yaml.safe_load(described["example"])
        if listing.kind is Kind.DRIVER:
            assert required <= section["clouds"][f"my-{listing.name}"].keys()
        else:
            assert required <= section["providers"][0].get("options", {}).keys()


def test_an_unknown_name_gets_a_suggestion() -> None:
    done = CliRunner().invoke(command, ["simulatd"])
    assert done.exit_code == 1
    assert "did you mean simulated?" in done.stderr


@pytest.mark.usefixtures("_packages")
def test_json_for_programs_has_everything() -> None:
    found = {entry["name"]: entry for entry in json.loads(run("-o", "json").stdout)}
    assert found["acme"] == {
        "kind": "driver",
        "name": "acme",
        "target": "fake_acme:AcmeDriver",
        "distribution": "fake-acme",
        "version": "1.0",
        "summary": "Machines of ACME [the cloud].",
        "extras": [],
        "options": [{"name": "tokenFile", "required": True}, {"name": "region", "required": False}],
        "error": None,
    }
    assert "no_such_library" in found["bad"]["error"]
    assert found["memory"]["kind"] == "provider"


def test_it_says_how_to_make_another_one() -> None:
    assert "cloudgraft new driver NAME" in run().stdout


def test_it_has_an_example_in_its_help() -> None:
    assert "cloudgraft drivers -o json" in run("--help").stdout
