"""The command: ``python -m e2e.join``, or ``make e2e-join``."""

from __future__ import annotations

import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from clouds.judges.libvirt import missing_programs
from e2e.build import CannotBuildError, build, node_recipe, recipes_for
from e2e.command_line import FAILED, NOT_RUN, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.join.host import HOST, Host
from e2e.join.machine_image import machine_image, missing
from e2e.join.story import AT_ONCE, SECOND_TRY, tell_story
from e2e.join.talos import check_talos
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.stage import stage

__all__ = ["main"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--keep", is_flag=True, help="Keep all logs, also when everything passes.")
@click.option("--quick", is_flag=True, help="Leave out the machine whose first try fails, after five minutes.")
def main(*, keep: bool, quick: bool) -> None:
    """Let real machines join a real Kubernetes API, with the ready-made user data of kubeadm.

    The machines boot in QEMU without KVM. The exit code is 0 when all is as it must be, 1 when something is not, and 3
    when it could not be run here.
    """
    stop_in_order()
    if why := "; ".join(filter(None, [missing_programs(), missing()])):
        tell(f"not run: {why}")
        sys.exit(NOT_RUN)
    directory = Path(tempfile.mkdtemp(prefix="cloudgraft-join-"))
    try:
        _run(directory, [AT_ONCE] if quick else [AT_ONCE, SECOND_TRY])
    except CannotBuildError as error:
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


def _run(directory: Path, groups: Sequence[str]) -> None:
    version, release = CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE]
    programs = {name: path for recipe in recipes_for(version) for name, path in build(recipe, tell).items()}
    autoscaler = {name: path for recipe in recipes_for(release) for name, path in build(recipe, tell).items()}
    on_machines = build(node_recipe(version), tell)
    host = Host(directory, machine_image(on_machines, tell))
    with control_plane(programs, directory / "control-plane", guests_see=HOST) as plane:
        try:
            host.start()
            with stage(
                plane,
                release=release,
                binary=autoscaler["cluster-autoscaler"],
                directory=directory / "stage",
                namespace="join",
            ) as world:
                tell_story(world, host, on_machines["kubeadm"], version=version.kubernetes, groups=groups, tell=tell)
        finally:
            host.stop()
    check_talos(directory, tell)
    tell("passed")


if __name__ == "__main__":
    main()
