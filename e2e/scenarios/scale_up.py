"""Scenario 1: scale-up from zero. The right group is chosen for plain pods, by label, taint, GPU and other devices."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from e2e.config import cloud, document, node_group, taint
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_DISK: Final = "e2e.example/disk"
_ACCELERATOR: Final = "e2e.example/accelerator"
_CARD: Final = "example.com/card"
_SHAPES: Final = {"cards": {"cpu": 4, "memory": "16Gi", "extra": {_CARD: 2}}}
_GROUPS: Final = (
    node_group("plain", "small"),
    node_group("labelled", "medium", labels={_DISK: "fast"}),
    node_group("tainted", "large", taints=[taint("dedicated")]),
    node_group("gpu", "gpu", labels={_ACCELERATOR: "simulated"}, taints=[taint("nvidia.com/gpu")]),
    node_group("devices", "cards"),
)
_PLAIN: Final = Workload(name="plain", replicas=3, cpu="1500m", memory="3000Mi")  # one fills a node
_PARTICULAR: Final = {
    "labelled": Workload(name="labelled", replicas=2, cpu="3", memory="4Gi", selector={_DISK: "fast"}),
    "tainted": Workload(name="tainted", replicas=2, cpu="6", memory="4Gi", tolerates=["dedicated"]),
    "gpu": Workload(
        name="gpu", replicas=2, cpu="1", memory="1Gi", tolerates=["nvidia.com/gpu"], devices={"nvidia.com/gpu": "1"}
    ),
    "devices": Workload(name="devices", replicas=3, cpu="1", memory="1Gi", devices={_CARD: "1"}),
}
_SIZES: Final = {"plain": 3, "labelled": 2, "tainted": 2, "gpu": 2, "devices": 2}
# Nothing but the tainted group is large enough, and this one does not tolerate its taint.
_HOPELESS: Final = Workload(name="hopeless", replicas=1, cpu="6", memory="4Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options={"shapes": _SHAPES})
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=_GROUPS, engine={"gpuLabel": _ACCELERATOR}))
    stage.start_autoscaler()
    assert not stage.cluster.nodes(), "a scale-up from zero begins with no node"

    stage.cluster.run(_PLAIN, _HOPELESS)
    stage.until_equal(lambda: stage.cluster.running("plain"), 3, "the number of plain pods that run")
    stage.settle({"plain": 3})

    stage.cluster.run(*_PARTICULAR.values())
    for name, workload in _PARTICULAR.items():
        stage.until_equal(
            partial(stage.cluster.groups_of_pods, name),
            Counter({name: workload.replicas}),
            f"where the pods of {name} are",
        )
    total = sum(workload.replicas for workload in (_PLAIN, *_PARTICULAR.values()))
    stage.until_equal(stage.cluster.running, total, "the number of pods that run")
    stage.settle(_SIZES)
    _check_calls(stage)


def _check_calls(stage: Stage) -> None:
    """Each group was asked for exactly what it has, and nobody was told a failure."""
    asked: Counter[str] = Counter()
    for call in stage.server.calls():
        assert call.code == "OK", f"{call.rpc} was answered {call.code}"
        if call.rpc == "NodeGroupIncreaseSize":
            asked[call.group] += call.delta
    assert asked == _SIZES, f"asked for {dict(asked)}"
    assert stage.cluster.groups_of_pods("hopeless") == {"": 1}, "a pod that fits nowhere waits"


SCENARIO: Final = Scenario(
    number=1, seconds=55, title="scale-up from zero: plain pods, labels, taints, GPUs, other devices", run=_run
)
