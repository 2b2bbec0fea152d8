"""A command loads what it needs when it runs: help, completion and small commands are quick."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Third-party packages that options, help and tables need. Everything else is loaded by the command that needs it.
LIGHT = {"cloudgraft", "click", "rich"}
# Ours that are slow to import, because of what they import in turn; and the one slow part of the standard library.
HEAVY = {
    *(
        f"cloudgraft.{name}"
        for name in ("admin", "app", "client", "config", "conformance.kit", "demo", "dock", "engine")
    ),
    *(f"cloudgraft.{name}" for name in ("kube", "plugins", "providers", "server", "service", "store", "testing")),
    *(f"cloudgraft.{name}" for name in ("validation", "web", "wire")),
    "sqlite3",
}
LOADED = """
def heavy(before):
    found = set(sys.modules) - before
    third = {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names)
    return sorted((third - LIGHT) | (HEAVY & found))
"""
HELPS = f"""
import json, sys
before = set(sys.modules)
LIGHT, HEAVY = {LIGHT!r}, {HEAVY!r}
{LOADED}
import click
from cloudgraft.cli.main import cloudgraft

def look(command, context):
    command.get_help(context)
    print(json.dumps([context.command_path, heavy(before)]))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            look(child, click.Context(child, info_name=name, parent=context))

look(cloudgraft, click.Context(cloudgraft, info_name="cloudgraft"))
"""
RUN = f"""
import json, sys
before = set(sys.modules)
LIGHT, HEAVY = {LIGHT!r}, {HEAVY!r}
{LOADED}
from cloudgraft.cli.main import main
sys.argv = ["cloudgraft", *sys.argv[1:]]
code = 0
try:
    main()
except SystemExit as ended:
    code = ended.code
print(json.dumps([code, heavy(before)]))
"""


def run(program: str, *arguments: str, cwd: Path | None = None) -> list[Any]:
    """Each JSON line of what the program prints."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=55)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_the_help_of_no_command_loads_what_only_its_work_needs() -> None:
    looked = run(HELPS)
    assert len(looked) > 40
    assert [found for found in looked if found[1]] == []


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["--version"], 0), (["serv"], 2), (["serve", "--nonsense"], 2)]
)
def test_neither_help_nor_a_usage_error_loads_what_work_needs(arguments: list[str], code: int) -> None:
    assert run(RUN, *arguments) == [[code, []]]


def test_status_loads_only_what_calls_a_server(tmp_path: Path) -> None:
    (tmp_path / "cloudgraft.yaml").write_text("cluster: x\nstore: {path: j.db}\nclouds: {sim: {driver: simulated}}\n")
    ((code, found),) = run(RUN, "status", "--timeout", "5s", cwd=tmp_path)
    assert code == 1  # no server answers
    ours = {name for name in found if name.startswith("cloudgraft.")}
    assert ours == {"cloudgraft.admin", "cloudgraft.client", "cloudgraft.wire"}
    assert not {"pydantic", "sqlalchemy", "sqlite3", "prometheus_client", "structlog"} & set(found)


def test_the_list_of_drivers_imports_none_of_ours(tmp_path: Path) -> None:
    program = f"{RUN}print(json.dumps([name for name in sys.modules if name.startswith('cloudgraft.')]))"
    (code, found), ours = run(program, "drivers", cwd=tmp_path)
    assert code == 0
    assert [name for name in ours if name.startswith(("cloudgraft.drivers", "cloudgraft.simcloud"))] == []
    assert not {"sqlalchemy", "grpc", "httpx2", "boto3", "libcloud", "openstack", "cloudgraft.engine"} & set(found)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["discovery", "offers", "--help"], 0), (["discovery", "prices", "set", "-h"], 0), (["discovery", "offers"], 1)],
)
def test_discovery_without_its_extra_has_help_and_says_how_to_install_it(arguments: list[str], code: int) -> None:
    missing = "import sys; sys.modules |= dict.fromkeys(('fastapi', 'uvicorn', 'httpx2'))\n"
    program = f"{missing}from cloudgraft.cli.main import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, timeout=55
    )
    assert done.returncode == code
    if code == 0:
        assert done.stdout.startswith("Usage: ")
    else:
        assert re.search(r"which are not installed: .*\[web\]", done.stderr)
