"""The command: ``python -m e2e.first_node``, or ``make e2e-first-node``.

What is real: the page's commands, helm, kubectl, the API server with its scheduler and controllers, the chart, and the
programs of its pods, each in namespaces of its own with the user, files, token and network that its pod says. What
stands in for something: a kubelet (:mod:`e2e.first_node.kubelet`), a registry (:mod:`e2e.first_node.images`), and the
way of ``kubectl exec`` into a container (:mod:`e2e.first_node.kubectl`). Not judged here: the image, which `make
test-image` builds and runs, and whether network policies are enforced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from e2e.build import CannotBuildError, build_all
from e2e.command_line import binaries_option, keep_option, logs_directory, not_run, stop_in_order, tell
from e2e.control_plane import control_plane
from e2e.first_node import network, page
from e2e.first_node.images import images
from e2e.first_node.kubelet import Kubelet
from e2e.helm import Helm
from e2e.modules import AUTOSCALERS, CONTROL_PLANES, NEWEST_CONTROL_PLANE

__all__ = ["main"]

_PROGRAMS: Final = ("unshare", "nsenter", "setpriv", "chroot", "mount", "ip")
_APART: Final = "CLOUDGRAFT_E2E_APART"  # set once this runs in namespaces of its own


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@binaries_option
@keep_option
def main(*, binary: Mapping[str, Path], keep: bool) -> None:
    """Type the page "From an empty cluster to the first scaled node", on a real control plane.

    The exit code is 0 when all is as the page says, 1 when something is not, and 3 when it could not be run here.
    """
    stop_in_order()
    if why := _missing():
        not_run(why)
    try:
        programs = _built(binary)
    except CannotBuildError as error:
        not_run(str(error))
    if _APART not in os.environ:  # only now: the builds needed this machine's network
        words = ["unshare", "--net", "--mount", sys.executable, "-m", "e2e.first_node", *sys.argv[1:]]
        os.execvpe(words[0], words, {**os.environ, _APART: "1"})
    with logs_directory("first-node", keep=keep) as directory:
        directory.chmod(0o755)  # pods are other users
        _run(directory, programs)


def _missing() -> str:
    if os.geteuid() != 0:
        return "only root can give pods their users and networks"
    if programs := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(programs)}"
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"namespaces cannot be made here: {done.stderr.strip()}" if done.returncode else ""


def _built(given: Mapping[str, Path]) -> dict[str, Path]:
    version = CONTROL_PLANES[NEWEST_CONTROL_PLANE]
    programs = build_all(tell, version)
    release = AUTOSCALERS[page.release().rpartition(".")[0]]  # a patch release differs from another in little
    if release.name in given:
        programs["cluster-autoscaler"] = given[release.name]
    else:
        programs |= build_all(tell, release)
    return {**programs, "helm": Helm.built(tell).binary}


def _run(directory: Path, programs: Mapping[str, Path]) -> None:
    began = time.monotonic()
    network.set_up()
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # it cannot be reached from here
    version = CONTROL_PLANES[NEWEST_CONTROL_PLANE].kubernetes
    with control_plane(programs, directory / "plane", pods_see=network.HOST) as plane:
        known = images(programs["cluster-autoscaler"], f"v{page.release()}")
        kubelet = Kubelet(plane, known, directory / "node", version=version)
        kubelet.start()
        try:
            typed = page.type_page(plane, kubelet, programs["helm"], directory, tell)
            outcome = page.judge(plane, kubelet)
        finally:
            kubelet.stop()
    took = time.monotonic() - began
    tell(f"passed: {typed} commands of the page in {took:.0f} s on Kubernetes {version}; {outcome}")


if __name__ == "__main__":
    main()
