"""What the scenarios with the driver of a real cloud have in common: up, a kill in the middle, and down to nothing.

The machines are the cloud's; what would run on them is played by :mod:`e2e.stand_in`, with the user data that each was
really given.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.config import document
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.processes import Program
from e2e.stage import Stage
from e2e.stand_in.cluster_info import prepare_for_kubeadm

__all__ = ["RealCloud", "scale_into"]

_GROUP: Final = "nodes"
_PODS: Final = Workload(name="pods", replicas=0, cpu="1500m", memory="1Gi")  # one fills a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCloud:
    """A cloud that runs."""

    section: Mapping[str, Any]  # of the configuration, with `driver`
    machine: Mapping[str, Any]
    capacity: Mapping[str, Any]  # of a machine: what its stand-in says
    host: Callable[[Path, Path], Program]  # what runs its machines, by its home and a kubeconfig
    alive: Callable[[], Sequence[str]]  # the names of its machines, asked without the driver


def scale_into(stage: Stage, cloud: RealCloud) -> None:
    """From nothing to three nodes, with cloudgraft killed in between, and back to nothing."""
    prepare_for_kubeadm(stage.cluster.client, stage.plane.server, stage.plane.authority)
    home = stage.directory / "machines"
    home.mkdir()
    stage.start_program(cloud.host(home, stage.plane.kubeconfig))
    stage.start_server(_document(stage, cloud))
    stage.until(lambda: _GROUP in stage.server.groups(), "the group is served")
    stage.start_autoscaler()
    stage.cluster.run(_PODS)
    _scaled(stage, cloud, 1)
    _scaled(stage, cloud, 3, killed=True)
    _scaled(stage, cloud, 1)
    _scaled(stage, cloud, 0)
    counted = Counter(entry["what"] for entry in _ledger(home))
    assert counted == {"started": 3, "ended": 3}, f"the machines that really ran: {dict(counted)}"
    states = Counter(machine["state"] for machine in stage.server.journal().machines)
    assert states == {"gone": 3}, f"the journal has {dict(states)}"


def _document(stage: Stage, cloud: RealCloud) -> dict[str, Any]:
    section = {**cloud.section, "engine": {"observeEvery": "1s"}}
    looks = {"labels": {GROUP_LABEL: _GROUP}, "capacity": dict(cloud.capacity)}
    group = {"id": _GROUP, "cloud": "real", "minSize": 0, "maxSize": 5, "machine": dict(cloud.machine)}
    return document(
        clouds={"real": section},
        groups=[{**group, "template": looks}],
        kubernetes={"kubeconfig": str(stage.plane.kubeconfig)},
        join={"template": "kubeadm", "server": stage.plane.server},
    )


def _scaled(stage: Stage, cloud: RealCloud, size: int, *, killed: bool = False) -> None:
    before = _asked(stage)
    stage.cluster.scale("pods", size)
    if killed:
        stage.until(lambda: _asked(stage) > before, "the autoscaler asks for more")
        stage.server.kill()
        stage.server.start()
    expected = {_GROUP: size} if size else {}
    stage.until_equal(stage.cluster.sizes, expected, "the number of nodes by group")
    stage.until_equal(stage.cluster.running, size, "the number of pods that run")
    running = {_GROUP: {"running": size}} if size else {}
    stage.until_equal(stage.server.states, running, "what cloudgraft has")
    names = sorted(machine["name"] for machine in stage.server.groups()[_GROUP]["machines"])
    stage.until_equal(lambda: sorted(cloud.alive()), names, "what the cloud itself has")


def _asked(stage: Stage) -> int:
    return sum(call.rpc == "NodeGroupIncreaseSize" for call in stage.server.calls())


def _ledger(home: Path) -> list[dict[str, str]]:
    file = home / "ledger.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
