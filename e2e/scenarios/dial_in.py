"""Scenario 16: a driver that dials in. It, and then the hub with everything around it, is killed in mid-change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.config import document, node_group
from e2e.kubernetes import Workload
from e2e.processes import Program, free_ports
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

# A cloud that is slow to answer, and that makes a second machine when it is asked twice: nothing is forgiven.
_OPTIONS: Final = {"idempotency": "none", "bootTime": "3s", "deleteTime": "3s"}
_CHAOS: Final = {"latency": [0.3, 0.8]}
_KEY: Final = {"kind": "SimMachineClass", "apiVersion": "sim.example/v1"}
_CAPACITY: Final = {"cpu": 2, "memory": "4Gi"}
_PODS: Final = Workload(name="pods", replicas=0, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options=_OPTIONS, chaos=_CHAOS)
    (port,) = free_ports(1)
    driver = _driver(stage.directory, f"127.0.0.1:{port}", sim.url)
    stage.start_program(driver)
    stage.start_server(_document(f"127.0.0.1:{port}"))
    stage.until(lambda: "small" in stage.server.groups(), "the group is there: the driver has dialled in")
    stage.start_autoscaler()
    stage.cluster.run(_PODS)
    for size, killed in ((2, driver), (4, stage.server)):
        _change(stage, size, "NodeGroupIncreaseSize", killed)
    for size, killed in ((2, driver), (0, stage.server)):
        _change(stage, size, "NodeGroupDeleteNodes", killed)
    doubles = [row for row in stage.server.journal().events if row["kind"] == "double"]
    assert not doubles, f"the cloud was asked twice: {doubles}"
    assert len(sim.ledger()) == 4, f"{len(sim.ledger())} machines were made for four"


def _document(dock: str) -> dict[str, Any]:
    template = {"instanceType": "small", "capacity": _CAPACITY}
    cloud = {"driver": "dock", **_KEY, "machineClass": "small", "engine": {"observeEvery": "1s"}}
    classes = {"small": {**_KEY, "nodeTemplate": template}}
    group = node_group("small", "small", max_size=20)
    return document(clouds={"sim": cloud}, groups=[group], dock={"listen": dock, "classes": classes})


def _driver(directory: Path, dock: str, cloud: str) -> Program:
    """Any driver that is installed can dial in: here the one of the simulated cloud."""
    file = directory / "driver.yaml"
    options = {"url": cloud, "idempotency": "none"}
    file.write_text(yaml.safe_dump({"address": dock, **_KEY, "driver": "simulated", "options": options}), "utf-8")
    command = [sys.executable, "-m", "cloudgraft.cli", "dock", "connect", "--config", str(file)]
    return Program("the driver", command, directory / "driver.log")


def _change(stage: Stage, size: int, rpc: str, killed: Program) -> None:
    """Changes the size, kills as soon as the autoscaler has asked for it, and waits until all is as it should be."""
    before = _count(stage, rpc)
    stage.cluster.scale("pods", size)
    stage.until(lambda: _count(stage, rpc) > before, f"{rpc} is called")
    killed.kill()
    assert len(stage.cluster.nodes()) != size, "it was in the middle of it"
    killed.start()
    stage.until_equal(stage.cluster.running, size, "the number of pods that run")
    stage.settle({"small": size} if size else {})


def _count(stage: Stage, rpc: str) -> int:
    return sum(call.rpc == rpc for call in stage.server.calls())


SCENARIO: Final = Scenario(number=16, seconds=100, title="a driver that dials in; it and the hub killed", run=_run)
