"""A server's memory, which holds credentials, is in no core dump, and in reach of no other process of its user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudgraft.app import memory_dumps
from cloudgraft.cli.main import cloudgraft

PROGRAM = """
import ctypes, json, os, resource, subprocess, sys
from cloudgraft.app.memory_dumps import forbid_memory_dumps
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)  # root may look at everything
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # another user's process is not dumpable: as if it had begun as this one
assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1
forbid_memory_dumps()
print(json.dumps({
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "owner": os.stat(f"/proc/{os.getpid()}/environ").st_uid,
    "descriptors": len(os.listdir("/proc/self/fd")) > 0,
    "parent": int(open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[1]) == os.getppid(),
    "child": subprocess.run(["cat", "/proc/self/environ"], stdout=-3).returncode,
}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has it")
def test_a_protected_process_is_not_dumpable_and_its_children_are() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "dumpable": 0,
        "core": 0,
        "owner": 0,  # root's, so that no other process of its user reads it
        "descriptors": True,  # metrics count them
        "parent": True,  # keepers and watchdogs look for it
        "child": 0,  # it is dumpable: it may read its own environment
    }


class ProtectedError(Exception):
    """Raised in the place of the protection, to see when it comes."""


SERVERS = ("serve", "dock", "dock connect", "node-manager", "discovery serve", "discovery agent")


@pytest.mark.parametrize("name", SERVERS)
def test_each_server_is_protected_before_it_reads_a_secret(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def protect() -> None:
        raise ProtectedError

    monkeypatch.setattr(memory_dumps, "forbid_memory_dumps", protect)
    file = tmp_path / "c.yaml"
    file.write_text("not: [read")
    found = CliRunner().invoke(cloudgraft, [*name.split(), "-c", str(file)])
    assert isinstance(found.exception, ProtectedError), found.output
