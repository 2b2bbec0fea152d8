"""The command: ``python -m e2e.join``, or ``make e2e-join``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from clouds.judges.libvirt import missing_programs
from e2e.build import build, build_all, node_recipe
from e2e.command_line import keep_option, logs_directory, not_run, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.join.agents import AGENTS, check_agents
from e2e.join.host import HOST, Host
from e2e.join.machine_image import MachineImage, machine_image, missing
from e2e.join.story import AT_ONCE, SECOND_TRY, tell_story
from e2e.join.talos import check_talos
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.stage import stage

__all__ = ["main"]

_TEMPLATES = ("kubeadm", *AGENTS, "talos")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@keep_option
@click.option("--quick", is_flag=True, help="Leave out the machine whose first try fails, after five minutes.")
@click.option(
    "--template", "templates", multiple=True, type=click.Choice(_TEMPLATES), help="Only this; may be repeated."
)
def main(*, keep: bool, quick: bool, templates: Sequence[str]) -> None:
    """Have the ready-made user data do its work on real machines, as far as the real programs can be had.

    With that of kubeadm they join a real Kubernetes API; k3s, RKE2 and Talos are replaced. The machines boot in QEMU
    without KVM. The exit code is 0 when all is as it must be, 1 when something is not, and 3 when it could not be run.
    """
    stop_in_order()
    if why := "; ".join(filter(None, [missing_programs(), missing()])):
        not_run(why)
    with logs_directory("join", keep=keep) as directory:
        _run(directory, templates or _TEMPLATES, [AT_ONCE] if quick else [AT_ONCE, SECOND_TRY])


def _run(directory: Path, templates: Sequence[str], groups: Sequence[str]) -> None:
    if set(templates) != {"talos"}:
        on_machines = build(node_recipe(CONTROL_PLANES[NEWEST_CONTROL_PLANE]), tell)
        image = machine_image(on_machines, tell)
        if "kubeadm" in templates:
            _join(directory, on_machines["kubeadm"], image, groups)
        for template in AGENTS:
            if template in templates:
                check_agents(template, directory / template, image, tell)
    if "talos" in templates:
        check_talos(directory, tell)
    tell("passed")


def _join(directory: Path, kubeadm: Path, image: MachineImage, groups: Sequence[str]) -> None:
    version, release = CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE]
    programs = build_all(tell, version, release)
    host = Host(directory, image)
    with control_plane(programs, directory / "control-plane", guests_see=HOST) as plane:
        try:
            host.start()
            with stage(
                plane,
                release=release,
                binary=programs["cluster-autoscaler"],
                directory=directory / "stage",
                namespace="join",
            ) as world:
                tell_story(world, host, kubeadm, version=version.kubernetes, groups=groups, tell=tell)
        finally:
            host.stop()


if __name__ == "__main__":
    main()
