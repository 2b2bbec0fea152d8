"""Scenario 4: kill -9 of cloudgraft, of the autoscaler and of both, in mid-scale-up and in mid-scale-down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.processes import Program
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

# A cloud that is slow to answer, and that makes a second machine when it is asked twice: nothing is forgiven.
_OPTIONS: Final = {"idempotency": "none", "bootTime": "3s", "deleteTime": "3s"}
_CHAOS: Final = {"latency": [0.3, 0.8]}
_PODS: Final = Workload(name="pods", replicas=0, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options=_OPTIONS, chaos=_CHAOS)
    clouds = {"sim": cloud(sim.url, idempotency="none")}
    stage.start_server(document(clouds=clouds, groups=[node_group("group", "small", max_size=20)]))
    stage.start_autoscaler()
    stage.cluster.run(_PODS)
    victims: tuple[Sequence[Program], ...] = (
        (stage.server,),
        (stage.autoscaler,),
        (stage.server, stage.autoscaler),
    )
    sizes = (3, 6, 9)
    for size, killed in zip(sizes, victims, strict=True):
        _change(stage, size, "NodeGroupIncreaseSize", killed)
    for size, killed in zip((6, 3, 0), victims, strict=True):
        _change(stage, size, "NodeGroupDeleteNodes", killed)
    doubles = [row for row in stage.server.journal().events if row["kind"] == "double"]
    assert not doubles, f"a cloud was asked twice: {doubles}"


def _change(stage: Stage, size: int, rpc: str, killed: Sequence[Program]) -> None:
    """Changes the size, kills as soon as the autoscaler has asked for it, and waits until all is as it should be."""
    before = _count(stage, rpc)
    stage.cluster.scale("pods", size)
    stage.until(lambda: _count(stage, rpc) > before, f"{rpc} is called")
    for program in killed:
        program.kill()
    assert len(stage.cluster.nodes()) != size, "it was in the middle of it"
    for program in killed:
        program.start()
    stage.until_equal(stage.cluster.running, size, "the number of pods that run")
    # An autoscaler of 1.36 and later that was killed does not know what it has ordered, and may order again (R88); what
    # is too much goes again as every empty node does.
    stage.settle({"group": size} if size else {})


def _count(stage: Stage, rpc: str) -> int:
    return sum(call.rpc == rpc for call in stage.server.calls())


SCENARIO: Final = Scenario(
    number=4, seconds=105, title="kill -9 of cloudgraft, of the autoscaler, of both, in mid-change", run=_run
)
