"""The command that installs an extra works for the installation that runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cloudgraft.sdk.common.extras import check_installed, install_command, needing
from cloudgraft.sdk.errors import PreconditionError

TREE = Path(__file__).parents[2]


def installed(directory: Path, source: dict[str, object] | None) -> None:
    """A package `fake-acme` that was installed from ``source``; None is an index."""
    info = directory / "fake_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-acme\nVersion: 1.0\n")
    if source is not None:
        (info / "direct_url.json").write_text(json.dumps(source))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ({"url": "file:///src/my%20acme", "dir_info": {"editable": True}}, "-e '/src/my acme[a,b]'"),
        ({"url": "file:///src/acme", "dir_info": {}}, "'/src/acme[a,b]'"),
        ({"url": "file:///dist/acme.whl", "archive_info": {}}, "'fake-acme[a,b] @ file:///dist/acme.whl'"),
        ({"url": "https://acme.example/x.git", "vcs_info": {}}, "'fake-acme[a,b] @ https://acme.example/x.git'"),
        (None, "'fake-acme[a,b]'"),
    ],
    ids=["clone", "tree", "wheel", "repository", "index"],
)
def test_the_command_names_where_the_package_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, object] | None, wanted: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    installed(tmp_path, source)
    assert install_command("a", "b", package="fake-acme") == f"pip install {wanted}"


def test_the_pip_is_that_of_this_environment_and_not_another_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert install_command("a", package="nowhere") == f"{sys.executable} -m pip install 'nowhere[a]'"
    monkeypatch.chdir(Path(sys.executable).parent.parent)
    assert install_command("a", package="nowhere").startswith("bin/python")


def test_what_is_missing_is_named_and_what_is_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(PreconditionError) as caught:
        check_installed("a thing", "json", "fastapi", extra="web")
    assert caught.value.message == f"a thing needs fastapi, which is not installed: {install_command('web')}"
    with pytest.raises(PreconditionError) as caught, needing("a thing", "web"):
        import fastapi  # noqa: F401 - it is hidden
    assert caught.value.message == f"a thing needs fastapi, which is not installed: {install_command('web')}"


def test_a_missing_module_of_ours_is_a_bug_and_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError), needing("a thing", "web"):
        __import__("cloudgraft.no_such_module")


def test_no_hint_names_a_package_that_is_not_published() -> None:
    """Only `install_command` knows how this cloudgraft was installed; pages say it for this tree."""
    files = [*TREE.glob("src/**/*.py"), *TREE.glob("clouds/**/*.py"), *TREE.glob("docs/**/*.md"), TREE / "README.md"]
    named = [str(file) for file in files if re.search(r"install '?\"?cloudgraft\[", file.read_text("utf-8"))]
    assert len(files) > 100
    assert named == []


# -- core only ---------------------------------------------------------------------------------------------------------

_CORE = """
import sys
for name in {hidden!r}:
    sys.modules[name] = None

import click
from click.testing import CliRunner
from cloudgraft.cli.main import cloudgraft
from cloudgraft.plugins.registry import list_all

context = click.Context(cloudgraft)
for verb in cloudgraft.list_commands(context):
    done = CliRunner().invoke(cloudgraft, [verb, "--help"])
    print(verb, done.exit_code, repr(done.exception))
print("---")
for words in (["demo", "liqo"], ["node-manager", "-c", "x"], ["discovery", "serve", "-c", "x"]):
    done = CliRunner().invoke(cloudgraft, words)
    print(done.exit_code, type(done.exception).__name__, done.exception)
from cloudgraft.config import Config
from cloudgraft.app.tracing import check_tracing
try:
    check_tracing(Config.model_validate({{"cluster": "test", "tracing": {{"endpoint": "127.0.0.1:4317"}}}}))
except Exception as error:
    print("tracing", error)
for listing in list_all():
    print(listing.name, listing.error)
"""
_HIDDEN = (
    *("psycopg", "cloudgraft_native", "httpx2", "lightkube", "msgspec", "fastapi", "starlette", "uvicorn", "boto3"),
    *("botocore", "hcloud", "libcloud", "libvirt", "pycdlib", "openstack", "keystoneauth1", "proxmoxer", "requests"),
    *("sushy", "pyVmomi", "pyVim", "opentelemetry"),
)


def test_without_any_extra_every_help_works_and_every_hint_is_a_command() -> None:
    program = _CORE.format(hidden=_HIDDEN)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=TREE)
    lines = done.stdout.splitlines()
    helps, runs = lines[: lines.index("---")], lines[lines.index("---") + 1 :]
    assert [line for line in helps if not line.endswith(" 0 None")] == []
    for line, extra in zip(runs, ("liqo", "web", "web"), strict=False):
        assert re.fullmatch(rf"1 PreconditionError .* not installed: {re.escape(_command(extra))}", line)
    [line] = [line for line in runs if line.startswith("tracing ")]
    assert "tracing needs opentelemetry" in line
    assert line.endswith(f"not installed: {_command('tracing')}")
    for extra in ("ec2", "hetzner", "libcloud", "libvirt", "openstack", "proxmox", "redfish", "vsphere"):
        [line] = [line for line in runs if line.startswith(f"{extra} ")]
        assert line.endswith(f"; {_command(extra)}")
    for name in ("http", "liqo", "simulated", "exec"):  # they need nothing before they are configured
        assert f"{name} " in runs


def _command(extra: str) -> str:
    """As from the top of this tree."""
    return install_command(extra).replace(f"{TREE}[", ".[").replace(f"{TREE}/", "")
