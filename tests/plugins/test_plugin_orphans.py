"""After ``kill -9`` of cloudgraft no process of any plugin is left, and no file."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conditions import until
from tests.plugins.plugin_programs import PROVIDER, ROOT
from tests.plugins.processes import below

PLUGIN = f"{sys.executable} {PROVIDER}"
HOST = ROOT / "tests" / "plugins" / "host_program.py"


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ([sys.executable, str(PROVIDER)], 2),
        (["/bin/sh", "-c", f"{PLUGIN}; true"], 3),  # the plugin is a grandchild
        (["/bin/sh", "-c", f"sleep 600 & setsid sleep 600 & {PLUGIN} & wait"], 5),  # and has siblings, one far away
    ],
    ids=["child", "grandchild", "family"],
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_outlives_a_killed_host(
    command: list[str], size: int, number: signal.Signals, scratch: Path
) -> None:
    with running_host(command, scratch) as host:
        family = below(host.pid)
        assert len(family) == size, family
        assert contents(scratch)
        host.send_signal(number)
        host.wait(20)
        await until(lambda: not [process for process in family if process.is_alive], what="nobody is left")
        await until(lambda: not contents(scratch), what="no socket and no key is left")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the host makes its sockets; tmp_path is too long for one."""
    with tempfile.TemporaryDirectory(prefix="cg-", dir="/tmp") as directory:
        yield Path(directory)


@contextmanager
def running_host(command: list[str], scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv, env = [sys.executable, str(HOST), *command], {"TMPDIR": str(scratch), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, cwd=ROOT) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == b"groups: 1\n"
            yield host
        finally:
            host.kill()


def contents(directory: Path) -> list[Path]:
    return list(directory.iterdir())
