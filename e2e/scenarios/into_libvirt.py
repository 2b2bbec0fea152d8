"""Scenario 19: into real virtual machines of a real libvirt, which boot and read their user data from their seed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from clouds.judges.libvirt import IMAGE, JUDGE, POOL
from clouds.servers.libvirt_guest import boot_files
from clouds.servers.libvirtd import Libvirtd
from e2e.processes import Program
from e2e.scenarios.into_a_cloud import RealCloud, scale_into
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage
from e2e.stand_in.libvirt_host import CAPACITY

__all__ = ["SCENARIO"]

_ROOT: Final = Path(__file__).resolve().parents[2]


def _run(stage: Stage) -> None:
    daemon = Libvirtd(stage.directory)
    stage.stack.callback(daemon.stop)
    daemon.start()
    daemon.make_pool(POOL, daemon.images)
    daemon.virsh("vol-create-as", POOL, IMAGE, "64M", "--format", "qcow2")

    def host(home: Path, kubeconfig: Path) -> Program:
        options: list[str | Path] = ["--uri", daemon.uri, "--consoles", daemon.consoles, "--home", home]
        command = [sys.executable, "-m", "e2e.stand_in.libvirt_host", *options, "--kubeconfig", kubeconfig]
        return Program("the machines", command, stage.directory / "vms.log", environment={"PYTHONPATH": str(_ROOT)})

    section = {
        "driver": "libvirt",
        "uri": daemon.uri,
        "pool": POOL,
        "image": IMAGE,
        "networks": [],
        "domainType": "qemu",
        "consoleLogDirectory": str(daemon.consoles),
        "shapes": {"small": {"cpu": 1, "memory": "192Mi"}},
    }
    cloud = RealCloud(
        section=section,
        machine={"shape": "small", "boot": boot_files(daemon.home)},
        capacity=CAPACITY,
        host=host,
        alive=daemon.domains,
    )
    scale_into(stage, cloud)


SCENARIO: Final = Scenario(
    number=19,
    seconds=150,
    title="into virtual machines of libvirt, which really boot: up, killed in between, down",
    run=_run,
    missing=JUDGE.missing,
)
