"""Scenario 12: 500 pods at once into three groups, in one round; and the calls of a loop, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from e2e.config import cloud, document, node_group
from e2e.journal import Call, split_into_loops
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.modules import Release
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO", "calls_of_a_quiet_loop"]

_PODS: Final = {"first": 240, "second": 160, "third": 100}
_SIZES: Final = {"first": 12, "second": 8, "third": 5}  # twenty pods fill a node
_QUIET: Final = 3  # loops in a row that are counted
_IN_THE_BACKGROUND: Final = ("NodeGroups", "NodeGroupNodes")  # every two minutes, beside the loop


def calls_of_a_quiet_loop(release: Release, *, nodes: int, groups: int) -> dict[str, int]:
    """What one loop asks when all nodes are busy and nothing is to be done (contract, 1.2).

    All nodes are candidates, and none turns out to be unneeded.
    """
    per_candidate = 2 if release.is_at_least("1.28") else 1
    per_node = 2 if release.is_at_least("1.35") else 0
    return {
        "Refresh": 1,
        "NodeGroupForNode": nodes,
        "NodeGroupGetOptions": (per_candidate + per_node) * nodes,
        "NodeGroupTargetSize": 3 * groups,
    }


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options={"bootTime": "1s"})
    groups = [node_group(name, "small", max_size=50) for name in _PODS]
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=groups, log={"level": 5}))  # counts all calls
    total = sum(_PODS.values())
    stage.cluster.run(*(_workload(name, count) for name, count in _PODS.items()))
    stage.until_equal(stage.cluster.waiting, total, "the number of pods that wait")
    stage.start_autoscaler()  # now, so that it sees them all at once
    stage.until_equal(stage.cluster.running, total, "the number of pods that run")
    stage.settle(_SIZES)
    asked = [call for call in stage.server.calls() if call.rpc == "NodeGroupIncreaseSize"]
    assert len(asked) == len(_SIZES), f"one order for each group: {asked}"
    assert {call.group: call.delta for call in asked} == _SIZES, f"the right orders: {asked}"
    expected = calls_of_a_quiet_loop(stage.release, nodes=sum(_SIZES.values()), groups=len(_SIZES))
    stage.eventually(
        lambda: _last_loops(stage.server.calls()),
        lambda seen: len(seen) == _QUIET and all(_is_quiet(loop, expected) for loop in seen),
        f"the calls of {_QUIET} loops in a row are {expected}",
    )


def _is_quiet(loop: Mapping[str, int], expected: Mapping[str, int]) -> bool:
    """A node is no model for new ones before it is a minute old: until then templates are asked for, in each loop."""
    asked = loop.get("NodeGroupTemplateNodeInfo", 0)
    rest = {rpc: count for rpc, count in loop.items() if rpc != "NodeGroupTemplateNodeInfo"}
    return rest == expected and asked in (0, len(_SIZES))


def _workload(name: str, replicas: int) -> Workload:
    return Workload(name=name, replicas=replicas, cpu="95m", memory="100Mi", selector={GROUP_LABEL: name})


def _last_loops(calls: Sequence[Call]) -> list[dict[str, int]]:
    """The calls of the latest loops that have ended, by kind."""
    ended = split_into_loops(calls)[:-1][-_QUIET:]
    counts = [Counter(call.rpc for call in loop) for loop in ended]
    return [{rpc: count for rpc, count in loop.items() if rpc not in _IN_THE_BACKGROUND} for loop in counts]


SCENARIO: Final = Scenario(
    number=12, seconds=50, title="500 pods into three groups in one round; the calls of a loop counted", run=_run
)
