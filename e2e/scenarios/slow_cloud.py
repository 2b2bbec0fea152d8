"""Scenario 6: a cloud that hangs for 30 s, while the autoscaler waits for 5 s at most."""

from __future__ import annotations

from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_HANG: Final = 30.0
_SHORTER_HANG: Final = 12.0  # also more than the autoscaler would wait
_LONGEST_CALL: Final = 5000.0  # milliseconds, the autoscaler's own limit (R6)
_PODS: Final = Workload(name="pods", replicas=2, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options={"idempotency": "none"})  # asked twice, it would make two
    clouds = {"sim": cloud(sim.url, idempotency="none")}
    stage.start_server(document(clouds=clouds, groups=[node_group("group", "small")]))
    stage.start_autoscaler()
    stage.cluster.run(_PODS)
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.settle({"group": 2})
    before = stage.cluster.node_names()

    sim.order_chaos({"hang": _HANG})
    stage.cluster.scale("pods", 4)
    stage.until_equal(stage.server.targets, {"group": 4}, "the target, while the cloud hangs")
    assert len(sim.ledger()) == 2, "nothing can be made while the cloud hangs"

    def nothing_is_lost() -> None:
        assert before <= stage.cluster.node_names(), "a node was lost"

    stage.wait_for_loops(5, nothing_is_lost)
    stage.until_equal(stage.cluster.running, 4, "the number of pods that run")
    stage.settle({"group": 4})

    sim.order_chaos({"hang": _SHORTER_HANG})
    stage.cluster.scale("pods", 0)
    stage.until(lambda: not stage.server.targets(), "nothing is wanted, while the cloud hangs")
    assert len(sim.alive()) == 4, "nothing can be deleted while the cloud hangs"
    stage.settle({})
    _check_calls(stage)


def _check_calls(stage: Stage) -> None:
    assert len(stage.cloud.ledger()) == 4, "four machines were wanted, and four were made"
    for entry in stage.server.log_entries():
        if entry.get("event") == "call":
            assert entry["code"] == "OK", f"{entry['rpc']} was answered {entry['code']}"
            assert entry["ms"] < _LONGEST_CALL, f"{entry['rpc']} took {entry['ms']} ms"
    asked = [call.delta for call in stage.server.calls() if call.rpc == "NodeGroupIncreaseSize"]
    assert sum(asked) == 4, f"the autoscaler was never in doubt: {asked}"


SCENARIO: Final = Scenario(
    number=6, seconds=65, title="a cloud that hangs for 30 s: no double creation, no lost node", run=_run
)
