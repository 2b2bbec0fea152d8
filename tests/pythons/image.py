"""Runs the demo in the image, and the tests against what is installed in it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from scripts.make_image import build_image, find_builder
from tests.image.box import Box, open_box
from tests.pythons.packages import let_install
from tests.pythons.room import Room
from tests.pythons.run import DEMO, TEST, Run, StepFailedError
from tests.pythons.tree import TREE, copy_clean

__all__ = ["run_in_image"]

_INSTALLED: Final = "/opt/cloudgraft"
_CLONE: Final = "tree"  # in the volume, where every command begins
_WHERE: Final = "python -c 'import cloudgraft; print(cloudgraft.__file__)'"
_COMPILE: Final = "python -m compileall -q tests clouds e2e bench scripts"
_ROOT: Final = (0, 0)


def run_in_image(run: Run, *, base: str, builder: str, native_venv: Path) -> None:
    """Builds the image and runs both in it. Raises CannotBuildError, StepFailedError."""
    image = build_image(find_builder(builder), base=base, native_venv=native_venv, python=Path(sys.executable))
    with open_box(image, run.directory) as opened:
        # Tests write more to /tmp than programs do. Elsewhere the paths of their sockets would be too long.
        box = replace(opened.with_volume(run.directory / "volume"), memory="4g")
        environment = box.configuration.environment
        version = run.step("python --version", _inside(box, "python", "--version"))
        native = "with" if image.has_native else "without"
        run.lines.append(f"{version.strip()} of {image.name} on {image.base}, {native} the native transport")
        if DEMO in run.parts:
            run.demo("cloudgraft demo", _inside(box, *box.configuration.entrypoint, "demo", "--plain"))
        if TEST in run.parts:
            _add_test_tools(run, Room(root=box.root, directory="/"), environment)
            owner = _owner(box)
            copy_clean(box.data / _CLONE, owner)
            # As in make, what was compiled is kept: hundreds of processes use it.
            begin = f"cd {_CLONE} && unset PYTHONDONTWRITEBYTECODE"
            where = run.step("find cloudgraft", _inside(box, "sh", "-c", f"{begin} && {_WHERE}")).strip()
            if not where.startswith(_INSTALLED):
                raise StepFailedError(f"find cloudgraft: FAILED, the tests would use {where} and not the image's")
            run.step("compile the tests", _inside(box, "sh", "-c", f"{begin} && {_COMPILE}"))
            run.tests("tests of make test", _inside(box, "sh", "-c", f"{begin} && {_tests_of_make()} {run.only_tests}"))


def _inside(box: Box, *words: str) -> list[str]:
    return [*map(str, box.command(*words))]


def _owner(box: Box) -> tuple[int, int]:
    user, _, group = box.configuration.user.partition(":")
    return int(user), int(group)


def _add_test_tools(run: Run, room: Room, environment: Mapping[str, str]) -> None:
    """Adds the locked test tools to a copy of the image's files, and nothing that the image has already."""
    (room.root / "tmp/dev.txt").write_bytes((TREE / "requirements/dev.txt").read_bytes())
    pip = f"{_INSTALLED}/bin/pip"
    had = run.step("pip freeze", room.command(pip, "freeze", environment=environment, network=False, owner=_ROOT))
    installing = {**environment, **let_install(room.root)}
    run.step(
        "pip install",
        room.command(
            *(pip, "install", "--no-cache-dir", "--require-hashes", "-r", "/tmp/dev.txt"),
            environment=installing,
            network=True,
            owner=_ROOT,
        ),
    )
    has = run.step("pip freeze", room.command(pip, "freeze", environment=environment, network=False, owner=_ROOT))
    if changed := sorted({*had.splitlines()} - {*has.splitlines()}):
        raise StepFailedError(f"pip install: FAILED, the test tools replaced {', '.join(changed)} of the image")
    # PostgreSQL asks for the name of its user, and the image has none.
    with (room.root / "etc/passwd").open("a", encoding="utf-8") as users:
        users.write("cloudgraft:x:65532:65532::/tmp:/bin/sh\n")


def _tests_of_make() -> str:
    """The command of `make test`, for the image's environment."""
    options = ("--no-print-directory", "--dry-run", f"--assume-old={_INSTALLED}/.dev-installed")
    command = ("make", *options, "test", f"VENV={_INSTALLED}")
    printed = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout.strip()
    if not re.fullmatch(rf"{_INSTALLED}/bin/python -m pytest [^\n]+", printed):
        raise StepFailedError(f"make test: is not one command any more: {printed[:500]}")
    return printed
