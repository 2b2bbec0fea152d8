"""Scenario 7: the price expander goes by cloudgraft's prices; priority and least-waste work too."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

# Each expander has another favourite.
_SHAPES: Final = {
    "cheap": {"cpu": 4, "memory": "16Gi", "hourly": "0.01"},
    "snug": {"cpu": 2, "memory": "4Gi", "hourly": "0.90"},
    "preferred": {"cpu": 8, "memory": "32Gi", "hourly": "0.90"},
}
_FAVOURITES: Final = {"price": "cheap", "least-waste": "snug", "priority": "preferred"}
_PRIORITIES: Final = "10:\n  - .*\n50:\n  - preferred\n"


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options={"shapes": _SHAPES})
    groups = [node_group(name, name) for name in _SHAPES]
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=groups))
    stage.cluster.configure("cluster-autoscaler-priority-expander", {"priorities": _PRIORITIES})
    for expander, favourite in _FAVOURITES.items():
        stage.start_autoscaler(expander=expander)
        pods = Workload(name=expander, replicas=1, cpu="1800m", memory="3500Mi")
        stage.cluster.run(pods)
        stage.until_equal(
            partial(stage.cluster.groups_of_pods, expander),
            Counter([favourite]),
            f"where the expander {expander} puts a pod",
        )
        stage.settle({favourite: 1})
        stage.cluster.scale(expander, 0)
        stage.settle({})
        stage.autoscaler.stop()
    rpcs = Counter(call.rpc for call in stage.server.calls())
    assert rpcs["PricingNodePrice"] >= 3, f"three groups were priced: {rpcs}"
    assert rpcs["PricingPodPrice"] >= 4, f"and the pod for each of them: {rpcs}"


SCENARIO: Final = Scenario(number=7, seconds=60, title="price, priority and least-waste expanders", run=_run)
