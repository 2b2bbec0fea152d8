"""Scripts that a test writes, drivers that run them, and what must not be left of either."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cloudgraft.drivers.exec.driver import ExecDriver
from cloudgraft.drivers.exec.options import ExecOptions
from cloudgraft.sdk.driver import Machine, MachineSpec
from tests.conditions import until
from tests.plugins.processes import came_after

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "exec"
SPEC = MachineSpec(
    name="pool-1",
    group="pool",
    settings={"size": "small", "diskSize": 20, "spot": True, "nested": {"a": 1}},
    tags={"cloudgraft-name": "pool-1", "cloudgraft-group": 'Größe "M" $HOME'},
    user_data="#cloud-config\ntoken: abcdef.0123456789abcdef\n",
)
MACHINE = Machine(name="pool-1", machine_id="vm-1", provider_id="lab://vm-1", tags=SPEC.tags)
LIST_NONE = "echo '{\"machines\": []}'"
_MADE = '{"machine": {"name": "%s", "machineID": "vm-1", "state": "pending"}}'
CREATED = f"printf '{_MADE}' \"$CLOUDGRAFT_NAME\""


def script(directory: Path, body: str, name: str = "script.sh") -> Path:
    """An executable bash script."""
    file = directory / name
    file.write_text(f"#!/bin/bash\n{body}\n")
    file.chmod(0o755)
    return file


def exec_driver(directory: Path, **options: Any) -> ExecDriver:
    """A driver whose commands are these bash bodies (``create=...``) or, for lists, commands as they are."""
    given = {"create": CREATED, "delete": "true", "list": LIST_NONE, **options}
    for verb in ("create", "delete", "list", "shapes", "prices"):
        if isinstance(given.get(verb), str):
            given[verb] = [str(script(directory, given[verb], f"{verb}.sh"))]
    return ExecDriver(ExecOptions(**{"working_directory": directory, **given}))


@asynccontextmanager
async def nothing_left(directory: Path) -> AsyncIterator[None]:
    """No process, no open file and no temporary file more than before."""
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)  # asyncio's own things are there by now
    tempfile.tempdir, before = str(directory), tempfile.tempdir
    processes, files = came_after([]), _open_files()
    try:
        yield
        await until(lambda: not came_after(processes), what="all processes have ended")
        await until(lambda: _open_files() <= files, what="all files are closed")
        assert not names(directory, "cloudgraft-exec-*")
    finally:
        tempfile.tempdir = before


def names(directory: Path, pattern: str) -> list[str]:
    """The files of a directory that fit."""
    return sorted(file.name for file in directory.glob(pattern))


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def alive_with(marker: str) -> bool:
    """Whether a process with this word in its environment is alive, wherever it is."""
    return any(_has(entry, marker.encode()) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _has(entry: Path, marker: bytes) -> bool:
    try:
        is_zombie = b") Z " in (entry / "stat").read_bytes()
        return not is_zombie and marker in (entry / "environ").read_bytes()
    except OSError:
        return False
