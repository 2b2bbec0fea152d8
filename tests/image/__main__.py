"""Builds the image, and runs everything that it is for: ``python -m tests.image``, or ``make test-image``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import click

from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from scripts.make_image import CannotBuildError, Image, build_image, find_builder
from tests.image.box import open_box
from tests.image.checks import CHECKS, Trial


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--base", default="", metavar="IMAGE", help="As of make image.")
@click.option("--builder", default="", metavar="PROGRAM", help="As of make image.")
@click.option("--native-venv", default=".venv-native", type=click.Path(path_type=Path), help="As of make image.")
def main(*, base: str, builder: str, native_venv: Path) -> None:
    """Build the image of deploy/Dockerfile, and judge it.

    The exit code is 0 when all checks passed, 1 when one failed, and 3 when the image could not be built or run here.
    """
    if why := _missing():
        tell(f"not run: {why}")
        sys.exit(NOT_RUN)
    stop_in_order()
    try:
        image = build_image(
            find_builder(builder), base=base, native_venv=native_venv.absolute(), python=Path(sys.executable)
        )
    except CannotBuildError as error:
        tell(f"not run: {error}")
        sys.exit(NOT_RUN)
    sys.exit(_judge(image))


def _missing() -> str:
    if os.geteuid() != 0:
        return "only root can mount the image's files and become its user"
    programs = [name for name in ("unshare", "setpriv", "chroot", "mount") if shutil.which(name) is None]
    return f"not installed: {', '.join(programs)}" if programs else ""


def _judge(image: Image) -> int:
    native = "with" if image.has_native else "without"
    print(f"{image.name} on {image.base} by {image.builder.program}, {native} the native transport: {image.size}")
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-image-"))
    failed = 0
    with open_box(image, directory) as box:
        for number, (name, check) in enumerate(CHECKS.items()):
            volume = box.with_volume(directory / str(number))
            trial = Trial(box=volume, directory=directory, has_native=image.has_native)
            began = time.monotonic()
            try:
                outcome = f"passed  {check(trial)}"
            except Exception:  # noqa: BLE001 - whatever it is, the other checks are made too
                failed += 1
                outcome = f"FAILED\n{traceback.format_exc(limit=4)}"
            print(f"{time.monotonic() - began:6.1f} s  {name:38} {outcome}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} passed")
    if failed:
        print(f"logs: {directory}")
        return FAILED
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    main()
