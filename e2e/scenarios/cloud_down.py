"""Scenario 10: two groups in two clouds, one of them down from the start. The other scales normally."""

from __future__ import annotations

from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.processes import free_ports
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_GROUPS: Final = (node_group("up", "small", cloud="up"), node_group("down", "small", cloud="down"))
_PODS: Final = Workload(name="pods", replicas=2, cpu="1500m", memory="1Gi")
_PARTICULAR: Final = Workload(name="particular", replicas=1, cpu="1500m", memory="1Gi", selector={GROUP_LABEL: "down"})


def _run(stage: Stage) -> None:
    up = stage.start_cloud("up")
    (nobody,) = free_ports(1)
    clouds = {"up": cloud(up.url), "down": cloud(f"http://127.0.0.1:{nobody}")}
    # A first start waits for all clouds, and would do so for two minutes.
    stage.start_server(document(clouds=clouds, groups=_GROUPS, engine={"firstListTimeout": "5s"}))
    stage.start_autoscaler()
    stage.cluster.run(_PODS, _PARTICULAR)
    stage.until_equal(lambda: stage.cluster.running("pods"), 2, "the number of pods that run")
    stage.settle({"up": 2})
    _it_is_told(stage)

    stage.cluster.scale("pods", 0)
    stage.settle({})
    assert stage.cluster.groups_of_pods("particular") == {"": 1}, "what only the other cloud could run waits"
    failed = [call for call in stage.server.calls() if call.code != "OK"]
    assert not failed, f"{failed[0].rpc} was answered {failed[0].code}"


def _it_is_told(stage: Stage) -> None:
    status = stage.server.status()
    assert {entry["name"]: entry["up"] for entry in status["clouds"]} == {"up": True, "down": False}
    assert not status["trouble"], f"one cloud's trouble is its own: {status['trouble']}"
    group = stage.server.groups()["down"]
    assert group["leftOut"] or group["served"], "a group that cannot be served is left out visibly"


SCENARIO: Final = Scenario(
    number=10, seconds=25, title="two clouds, one down from the start: the other scales normally", run=_run
)
