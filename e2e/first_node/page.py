"""Types the page, and then compares the cloud's ledger, the journal and the cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from cloudgraft.simcloud.cloud import SimulatedCloud
from cloudgraft.simcloud.options import SimulatedOptions
from e2e.control_plane import ControlPlane
from e2e.first_node import kubectl as stand_in
from e2e.first_node.kubelet import NODE, Kubelet
from e2e.journal import read_journal
from e2e.kubectl import kubectl
from tests.docs.terminal import ROOT, Command, File, Terminal, steps

__all__ = ["judge", "release", "type_page"]

_PAGE: Final = ROOT / "docs" / "tutorial" / "from-an-empty-cluster-to-the-first-scaled-node.md"
_PATIENCE: Final = 300.0  # seconds, for what a reader looks at again and again
_LONGEST: Final = 330.0  # seconds, for one command; those that wait by themselves wait five minutes


def release() -> str:
    """The autoscaler's release in the values that the page has its reader write."""
    text = next(step.content for step in steps(_text()) if isinstance(step, File) and step.name == "values.yaml")
    return str(yaml.safe_load(text)["autoscaler"]["release"])


def type_page(plane: ControlPlane, kubelet: Kubelet, helm: Path, directory: Path, tell: Callable[[str], None]) -> int:
    """Does all that the page says, in its order, and returns how many commands that were."""
    reader = directory / "reader"
    (reader / ".kube").mkdir(parents=True)
    shutil.copy(plane.kubeconfig, reader / ".kube" / "config")
    (reader / "deploy").symlink_to(ROOT / "deploy")  # the reader is at the top of the tree
    program = stand_in.write(directory / "kubectl", plane.kubectl, kubelet.running_file)
    terminal = Terminal(reader, programs={"kubectl": program, "helm": helm}, patience=_PATIENCE, longest=_LONGEST)
    terminal.environment.pop("KUBECONFIG", None)
    typed = 0
    try:
        for step in steps(_text()):
            kubelet.check()
            plane.check()
            if isinstance(step, Command):
                tell(f"$ {step.text}")
                typed += 1
            terminal.do(step)
    finally:
        terminal.close()
    return typed


def judge(plane: ControlPlane, kubelet: Kubelet) -> str:
    """What ledger and journal have, in words. Raises AssertionError unless both have the same, and all is gone."""
    names = kubectl(plane, "get", "nodes", "-o", "name").split()
    assert names == [f"node/{NODE}"], f"left in the cluster: {names}"
    cloud = SimulatedCloud(SimulatedOptions(state_file=kubelet.volumes / "cloudgraft-simcloud" / "cloud.db"))
    try:
        machines = cloud.ledger()
    finally:
        cloud.close()
    assert machines, "the cloud has made no machine"
    assert all(machine.gone_at is not None for machine in machines), f"machines are left in the cloud: {machines}"
    store = kubelet.volumes / "cloudgraft-journal" / "journal.db"
    command = [sys.executable, "-m", "cloudgraft.cli", "db", "export", "--store", str(store)]
    exported = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=True).stdout
    states = Counter(machine["state"] for machine in read_journal(exported).machines)
    assert states == {"gone": len(machines)}, f"the journal has {dict(states)}, the cloud had {len(machines)}"
    return f"{len(machines)} machines made and gone, says the cloud, and so says the journal"


def _text() -> str:
    return _PAGE.read_text("utf-8")
