"""The command: ``python -m e2e.certificates``, or ``make e2e-certificates``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from e2e.build import build, build_all
from e2e.certificates import cert_manager, issuer_of_ones_own, story
from e2e.certificates.cert_manager import CertManager
from e2e.certificates.pods import Pods
from e2e.certificates.release import Release
from e2e.command_line import keep_option, logs_directory, stop_in_order, tell
from e2e.config import cloud, node_group
from e2e.control_plane import control_plane
from e2e.helm import Helm
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE, NEWEST_RELEASE
from e2e.stage import stage

__all__ = ["main"]

_NAMESPACE: Final = "autoscaling"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--cert-manager",
    "names",
    multiple=True,
    type=click.Choice(list(cert_manager.RELEASES)),
    help="Which release; may be given several times.  [default: all]",
)
@keep_option
def main(*, names: Sequence[str], keep: bool) -> None:
    """Let the real cert-manager make and renew the certificates that the chart asks for.

    cloudgraft serves with them, the real autoscaler connects by them, and other clients call all the while. The exit
    code is 0 when all is as it must be, 1 when something is not, and 3 when it could not be run here.
    """
    stop_in_order()
    with logs_directory("certificates", keep=keep) as directory:
        helm = Helm.built(tell)
        programs = build_all(tell, CONTROL_PLANES[NEWEST_CONTROL_PLANE], AUTOSCALERS[NEWEST_RELEASE])
        for name in names or cert_manager.RELEASES:
            build(cert_manager.RELEASES[name].recipe, tell)
        for name in names or cert_manager.RELEASES:
            _run(cert_manager.RELEASES[name], helm, programs, directory / name)


def _run(wanted: CertManager, helm: Helm, programs: Mapping[str, Path], directory: Path) -> None:
    begin = time.monotonic()
    directory.mkdir()
    tell(f"cert-manager {wanted.what}")
    with (
        control_plane(programs, directory / "control-plane") as plane,
        stage(
            plane,
            release=AUTOSCALERS[NEWEST_RELEASE],
            binary=programs["cluster-autoscaler"],
            directory=directory / "stage",
            namespace=_NAMESPACE,
        ) as world,
    ):
        cert_manager.define_kinds(wanted, plane, directory)
        manager = cert_manager.controller(wanted, plane, directory, tell)
        world.start_program(manager)
        sim = world.start_cloud()
        release = Release(helm=helm, plane=plane, namespace=_NAMESPACE, check=manager.check)
        config = {"clouds": {"sim": cloud(sim.url)}, "nodeGroups": [node_group("group", "small")]}
        log = {"level": 5, "format": "json"}  # names every call
        values = {"server": {"config": config, "log": log}, "autoscaler": {"release": f"{world.release.name}.0"}}
        asked = time.monotonic()
        requests = release.install(values)
        tell(f"{len(requests)} Certificates of the chart were ready after {time.monotonic() - asked:.1f} s")
        release.judge(directory / "issued")
        pods = Pods(world, release)
        pods.also(manager.check)
        story.play(pods, tell)
        pods.stop()
        secrets = release.secrets()
        release.uninstall()
        assert release.secrets() == secrets, "helm uninstall has taken Secrets of cert-manager away"
        issuer_of_ones_own.play(helm, plane, directory, tell, manager.check)
    tell(f"cert-manager {wanted.what}: passed ({time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    main()
