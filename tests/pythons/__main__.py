"""The command: ``python -m tests.pythons``, or ``make test-pythons``."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from scripts.debian_tree import CannotMakeTreeError
from scripts.make_image import CannotBuildError
from tests.pythons.debian import SUITES, run_on_debian
from tests.pythons.image import run_in_image
from tests.pythons.room import missing
from tests.pythons.run import DEMO, TEST, Run, StepFailedError
from tests.pythons.tree import TREE

_IMAGE: Final = "image"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--python",
    "pythons",
    multiple=True,
    type=click.Choice([*SUITES, _IMAGE]),
    help="Only this one; repeatable. Without it: all of them, and the image.",
)
@click.option("--only", type=click.Choice([DEMO, TEST]), help="Only the demo, or only the tests.")
@click.option("--tests", "only_tests", default="", metavar="ARGUMENTS", help="For pytest, as of ARGS_TEST.")
@click.option("--keep", is_flag=True, help="Keep each Debian with what is installed in it, for the next --keep.")
@click.option("--base", default="", metavar="IMAGE", help="As of make image.")
@click.option("--builder", default="", metavar="PROGRAM", help="As of make image.")
@click.option("--native-venv", default=".venv-native", type=click.Path(path_type=Path), help="Where maturin is.")
def main(
    *,
    pythons: Sequence[str],
    only: str | None,
    only_tests: str,
    keep: bool,
    base: str,
    builder: str,
    native_venv: Path,
) -> None:
    """Run the demo and the tests on each supported Python, as an ordinary user of a minimal Debian, and in the image.

    The exit code is 0 when all passed, 1 when something failed, and 3 when something could not be run here.
    """
    if why := missing() or _no_clone():
        tell(f"not run: {why}")
        sys.exit(NOT_RUN)
    stop_in_order()
    parts = (only,) if only else (DEMO, TEST)
    code = 0
    for name in pythons or (*SUITES, _IMAGE):
        with _directory(name, keep=keep and name != _IMAGE) as directory:
            run = Run(name=name, parts=parts, directory=directory, logs=_cache(), only_tests=only_tests)
            try:
                if name == _IMAGE:
                    run_in_image(run, base=base, builder=builder, native_venv=native_venv.absolute())
                else:
                    run_on_debian(name, run)
            except (CannotMakeTreeError, CannotBuildError) as error:
                run.lines.append(f"NOT RUN: {error}")
                code = code or NOT_RUN
            except StepFailedError as error:
                run.failures[:] = list(dict.fromkeys([*run.failures, str(error)]))
        if run.failures:
            code = FAILED
        print("\n".join([name, *(f"  {line}" for line in (*run.lines, *run.failures))]), flush=True)
    sys.exit(code)


def _no_clone() -> str:
    if shutil.which("git") is None:
        return "not installed: git"
    known = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=TREE, capture_output=True, check=False)
    return "" if known.returncode == 0 else f"{TREE} is not a git repository: nothing says which files a clone has"


def _cache() -> Path:
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cloudgraft" / "pythons"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _directory(name: str, *, keep: bool) -> Iterator[Path]:
    """A directory for one Python, empty and removed in the end unless it is kept. Two runs do not share it."""
    path = _cache() / name
    with (_cache() / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"{name}: waiting for another run")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not keep:  # a run that was killed leaves its files, and never its mounts
            shutil.rmtree(path, ignore_errors=True)
        path.mkdir(exist_ok=True)
        try:
            yield path
        finally:
            if not keep:
                shutil.rmtree(path)


if __name__ == "__main__":
    main()
