"""Scenario 3: the cheapest group has nothing to sell. The autoscaler falls back to the next within two loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import Workload
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_SHAPES: Final = {
    "cheap": {"cpu": 2, "memory": "4Gi", "hourly": "0.01"},
    "dear": {"cpu": 2, "memory": "4Gi", "hourly": "0.30"},
}
_GROUPS: Final = (node_group("cheap", "cheap"), node_group("dear", "dear"))
_PODS: Final = Workload(name="pods", replicas=2, cpu="1500m", memory="1Gi")


def _run(stage: Stage) -> None:
    sim = stage.start_cloud(options={"shapes": _SHAPES}, chaos={"stock": {"cheap": 0}})
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=_GROUPS))
    stage.start_autoscaler(expander="price")
    stage.cluster.run(_PODS)
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.settle({"dear": 2})
    _it_took_two_loops_at_most(stage.server.log_entries())
    _nothing_is_left(stage)


def _it_took_two_loops_at_most(entries: Sequence[Mapping[str, Any]]) -> None:
    """Counted from the moment at which cloudgraft knew: how long a cloud takes to say no is not the autoscaler's."""
    known = _first(entries, kind="state", group="cheap", state="failed")
    removed = _first(entries, event="call", rpc="NodeGroupDeleteNodes", group="cheap", code="OK")
    fallback = _first(entries, event="call", rpc="NodeGroupIncreaseSize", group="dear", code="OK")
    assert known < removed < fallback, "it was told, then taken away, then bought elsewhere"
    loops = sum(entry.get("rpc") == "Refresh" for entry in entries[known:fallback])
    assert loops <= 2, f"it took {loops} loops"


def _first(entries: Sequence[Mapping[str, Any]], **values: str) -> int:
    """The position of the first line of the log with these values."""
    for position, entry in enumerate(entries):
        if all(entry.get(key) == value for key, value in values.items()):
            return position
    raise AssertionError(f"cloudgraft's log has no line with {values}")


def _nothing_is_left(stage: Stage) -> None:
    assert {machine["shape"] for machine in stage.cloud.ledger()} == {"dear"}, "nothing cheap was ever made"
    rows = [row for row in stage.server.journal().machines if row["group_id"] == "cheap"]
    assert rows, "the journal has what could not be bought"
    assert {row["state"] for row in rows} == {"gone"}, "and nothing of it is left"
    assert {row["error_class"] for row in rows} == {1}, "the autoscaler was told: out of resources (R35)"
    if stage.release.is_at_least("1.30"):  # before, the status is prose
        assert "Backoff" in stage.cluster.status(), "the autoscaler backed the cheap group off"


SCENARIO: Final = Scenario(
    number=3, seconds=20, title="stock-out in the cheapest group: fallback to the next within two loops", run=_run
)
