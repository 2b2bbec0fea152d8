"""Scenario 11: a restart of cloudgraft with a changed configuration: a maximum raised, a group added, one removed."""

from __future__ import annotations

from typing import Any, Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_LOOPS: Final = 4


def _run(stage: Stage) -> None:
    sim = stage.start_cloud()

    def config(*groups: dict[str, Any]) -> dict[str, Any]:
        return document(clouds={"sim": cloud(sim.url)}, groups=groups)

    stage.start_server(config(node_group("grows", "small", max_size=1), node_group("leaves", "small")))
    stage.start_autoscaler()
    stage.cluster.run(_workload("grows", 2), _workload("comes", 1), _workload("leaves", 1))
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.settle({"grows": 1, "leaves": 1})
    stage.wait_for_loops(_LOOPS, lambda: _has(stage, {"grows": 1, "leaves": 1}))

    stage.server.stop()
    stage.server.configure(config(node_group("grows", "small", max_size=3), node_group("comes", "small")))
    stage.server.start()
    stage.until_equal(stage.cluster.running, 4, "the number of pods that run")
    stage.settle({"grows": 2, "comes": 1, "leaves": 1})
    assert stage.server.groups()["leaves"]["draining"], "a group that left the file drains"
    stage.wait_for_loops(_LOOPS, lambda: _has(stage, {"grows": 2, "comes": 1, "leaves": 1}))

    stage.cluster.scale("leaves", 0)
    stage.settle({"grows": 2, "comes": 1})
    stage.until(lambda: "leaves" not in stage.server.groups(), "an empty group that left the file is removed")
    failed = [call for call in stage.server.calls() if call.code != "OK"]
    assert not failed, f"{failed[0].rpc} was answered {failed[0].code}"


def _workload(name: str, replicas: int) -> Workload:
    return Workload(name=name, replicas=replicas, cpu="1500m", memory="1Gi", selector={GROUP_LABEL: name})


def _has(stage: Stage, sizes: dict[str, int]) -> None:
    assert stage.cluster.sizes() == sizes, f"not {sizes}: {stage.cluster.sizes()}"


SCENARIO: Final = Scenario(
    number=11, seconds=42, title="a restart with a maximum raised, a group added, a group removed", run=_run
)
