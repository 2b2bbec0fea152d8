"""Scenario 2: scale-down of empty nodes, then with drain; never below the minimum."""

from __future__ import annotations

from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_GROUPS: Final = (node_group("kept", "small", min_size=1), node_group("drained", "small"))
_WIDE: Final = Workload(name="wide", replicas=3, cpu="1500m", memory="1Gi", selector={GROUP_LABEL: "kept"})
# A filler and a movable pod fill a node; without fillers one node is enough for all that is left.
_FILLERS: Final = Workload(name="fillers", replicas=3, cpu="1200m", memory="1Gi", selector={GROUP_LABEL: "drained"})
_MOVABLE: Final = Workload(name="movable", replicas=3, cpu="600m", memory="512Mi", selector={GROUP_LABEL: "drained"})


def _run(stage: Stage) -> None:
    sim = stage.start_cloud()
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=_GROUPS))
    stage.start_autoscaler()
    stage.cluster.run(_WIDE, _FILLERS)
    stage.until_equal(stage.cluster.running, 6, "the number of pods that run")
    stage.cluster.run(_MOVABLE)
    stage.until_equal(stage.cluster.running, 9, "the number of pods that run")
    stage.settle({"kept": 3, "drained": 3})
    _empty_nodes_go(stage)
    _nodes_are_drained(stage)
    _all_is_in_order(stage)


def _empty_nodes_go(stage: Stage) -> None:
    stage.cluster.scale("wide", 0)
    stage.eventually(stage.cluster.sizes, lambda sizes: sizes.get("kept", 0) <= 1, "empty nodes go")
    stage.settle({"kept": 1, "drained": 3})


def _nodes_are_drained(stage: Stage) -> None:
    before = {pod.metadata.name for pod in stage.cluster.pods("movable") if pod.metadata}
    stage.cluster.scale("fillers", 0)
    stage.until_equal(lambda: len(stage.cluster.nodes("drained")), 1, "the number of nodes that are left")
    stage.until_equal(lambda: stage.cluster.running("movable"), 3, "the number of movable pods that run")
    after = {pod.metadata.name for pod in stage.cluster.pods("movable") if pod.metadata}
    assert len(after - before) >= 2, f"two pods were evicted and made again: {before} became {after}"
    stage.settle({"kept": 1, "drained": 1})


def _all_is_in_order(stage: Stage) -> None:
    """The empty node of the minimum stays, however often the autoscaler looks; and no call ever failed."""

    def holds() -> None:
        assert len(stage.cluster.nodes("kept")) == 1, "a group went below its minimum"

    stage.wait_for_loops(6, holds)
    deleted = [call for call in stage.server.calls() if call.rpc == "NodeGroupDeleteNodes"]
    assert len(deleted) == 4, f"one call for each of four nodes (R49): {deleted}"
    failed = [call for call in stage.server.calls() if call.code != "OK"]
    assert not failed, f"{failed[0].rpc} was answered {failed[0].code}"
    journal = stage.server.journal()
    assert sum(row["state"] == "gone" for row in journal.machines) == 4
    assert journal.kinds("kept").count("delete") == 2
    assert journal.kinds("drained").count("delete") == 2


SCENARIO: Final = Scenario(
    number=2, seconds=55, title="scale-down of empty nodes, then with drain, never below the minimum", run=_run
)
