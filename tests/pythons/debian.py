"""Does what a newcomer does with a clone, as an ordinary user of a minimal Debian that has this Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from scripts.debian_tree import debian_tree
from tests.pythons.packages import let_install
from tests.pythons.room import OWNER, Room
from tests.pythons.run import DEMO, TEST, Run
from tests.pythons.tree import copy_clean

__all__ = ["SUITES", "run_on_debian"]

# Which Debian has which Python as its own. No Debian has 3.12.
SUITES: Final = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid"}
_PACKAGES: Final = ("ca-certificates", "make", "python3", "python3-venv")
_USER: Final = "newcomer"
_HOME: Final = f"/home/{_USER}"
_CLONE: Final = f"{_HOME}/cloudgraft"
# What a login gives, and nothing of this machine's.
_LOGIN: Final = {
    "HOME": _HOME,
    "LOGNAME": _USER,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "SHELL": "/bin/sh",
    "USER": _USER,
}


def run_on_debian(python: str, run: Run) -> None:
    """Makes the tree, and runs make in it. Raises CannotMakeTreeError, StepFailedError."""
    suite = SUITES[python]
    root = run.directory / "root"
    if not root.exists():
        _make(root, suite)
    installing = {**_LOGIN, **let_install(root)}
    clone = root / _CLONE.removeprefix("/")
    _empty(clone)
    copy_clean(clone, OWNER)
    room = Room(root=root, directory=_CLONE)

    version = run.step("python3 --version", room.command("python3", "--version", environment=_LOGIN, network=False))
    run.lines.append(f"{version.strip()} of Debian {suite}")
    if DEMO in run.parts:
        words = ("make", "demo", "ARGS_DEMO=--plain")
        run.demo("make demo", room.command(*words, environment=installing, network=True))
    if TEST in run.parts:
        stamp = ".venv/.dev-installed"
        run.step(f"make {stamp}", room.command("make", stamp, environment=installing, network=True))
        # The tests promise to need no network, so they get none.
        chosen = [f"ARGS_TEST={run.only_tests}"] if run.only_tests else []
        run.tests("make test", room.command("make", "test", *chosen, environment=_LOGIN, network=False))


def _make(root: Path, suite: str) -> None:
    archive = debian_tree(suite, _PACKAGES)
    unfinished = root.with_name("unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    subprocess.run(["tar", "--extract", "--numeric-owner", "-f", archive, "-C", unfinished], check=True)
    number = str(OWNER[0])
    command = ("useradd", "--create-home", "--shell", "/bin/sh", "--uid", number, "--user-group", _USER)
    subprocess.run(["chroot", unfinished, *command], check=True, capture_output=True)
    unfinished.rename(root)


def _empty(clone: Path) -> None:
    """Removes what a former run has left in a Debian that was kept, but not what it has installed."""
    for path in clone.iterdir() if clone.exists() else ():
        if path.name != ".venv":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
