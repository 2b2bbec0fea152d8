"""Scenario 5: a machine that never joins is removed after the provision time, and replaced."""

from __future__ import annotations

from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_PODS: Final = Workload(name="pods", replicas=2, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(chaos={"neverBoots": {"next": 1}})
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=[node_group("group", "small")]))
    # A group that was slow is left alone for a while; here for a short one.
    stage.start_autoscaler(
        max_node_provision_time="15s", initial_node_group_backoff_duration="3s", max_node_group_backoff_duration="3s"
    )
    stage.cluster.run(_PODS)
    stage.until_equal(stage.cluster.running, 1, "the number of pods that run")
    joined = stage.cluster.provider_ids()
    silent = next(machine for machine in sim.ledger() if machine["providerId"] not in joined)  # the oldest
    stage.until(lambda: _is_gone(stage, silent["name"]), f"{silent['name']} is deleted in its cloud")
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.settle({"group": 2})
    _check_journal(stage, silent["name"])


def _is_gone(stage: Stage, name: str) -> bool:
    return any(machine["name"] == name and machine["goneAt"] for machine in stage.cloud.ledger())


def _check_journal(stage: Stage, silent: str) -> None:
    journal = stage.server.journal()
    states = [row["state"] for row in journal.events if row["machine"] == silent and row["kind"] == "state"]
    assert states[-1] == "gone", f"what became of it: {states}"
    assert "running" not in states, f"it never ran: {states}"
    failed = [call for call in stage.server.calls() if call.code != "OK"]
    assert not failed, f"{failed[0].rpc} was answered {failed[0].code}"
    deleted = [call for call in stage.server.calls() if call.rpc == "NodeGroupDeleteNodes"]
    assert deleted, "the autoscaler has deleted it"


SCENARIO: Final = Scenario(number=5, seconds=35, title="a machine that never joins is removed and replaced", run=_run)
