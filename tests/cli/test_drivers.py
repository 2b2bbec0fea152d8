"""`cloudgraft drivers` from the outside."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudgraft.cli.drivers import command
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
    assert any(
        all(
            word in line
            for word in ("driver", "acme", "fake-acme 1.0", "Machines of ACME [the cloud]", "tokenFile*, region")
        )
        for line in lines
    )
    assert any("bad" in line and "cannot be used" in line for line in lines)
    assert any("provider" in line and "memory" in line for line in lines)
    assert "the driver 'bad' of fake-bad 1.0 cannot be imported: ModuleNotFoundError" in shown
    assert "* must be set" in shown


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
        "options": [{"name": "tokenFile", "required": True}, {"name": "region", "required": False}],
        "error": None,
    }
    assert "no_such_library" in found["bad"]["error"]
    assert found["memory"]["kind"] == "provider"


def test_it_says_how_to_make_another_one() -> None:
    assert "cloudgraft new driver NAME" in run().stdout


def test_it_has_an_example_in_its_help() -> None:
    assert "cloudgraft drivers -o json" in run("--help").stdout
