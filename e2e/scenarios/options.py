"""Scenario 8: options of one group hold where a release can be told, and are withheld where they would do harm."""

from __future__ import annotations

from typing import Final

from e2e.config import cloud, document, node_group
from e2e.kubernetes import GROUP_LABEL, Workload
from e2e.modules import Release
from e2e.scenarios.scenario import Scenario
from e2e.stage import Stage

__all__ = ["SCENARIO"]

_LOOPS: Final = 8  # far longer than the unneeded time of the flags
# Longer than any test: a node of this group stays for as long as the autoscaler goes by it. The second option says that
# the group does not mind what 1.29 to 1.33 cannot be told (B2).
_OPTIONS: Final = {"scaleDownUnneededTime": "1h", "ignoreDaemonSetsUtilization": False}
_GROUPS: Final = (node_group("usual", "small"), node_group("patient", "small", options=_OPTIONS))


def _run(stage: Stage) -> None:
    sim = stage.start_cloud()
    stage.start_server(document(clouds={"sim": cloud(sim.url)}, groups=_GROUPS))
    stage.start_autoscaler()
    names = ("usual", "patient")
    stage.cluster.run(*(_workload(name) for name in names))
    stage.until_equal(stage.cluster.running, 2, "the number of pods that run")
    stage.settle({"usual": 1, "patient": 1})  # 1.27 and 1.28 would delete a machine that is told its options (B1)
    for name in names:
        stage.cluster.scale(name, 0)
    stage.until_equal(lambda: len(stage.cluster.nodes("usual")), 0, "the number of usual nodes")
    harm = _harm(stage.release)
    if harm:
        _they_were_withheld(stage, harm)
    else:
        _they_hold(stage)


def _workload(name: str) -> Workload:
    return Workload(name=name, replicas=1, cpu="1500m", memory="1Gi", selector={GROUP_LABEL: name})


def _harm(release: Release) -> str:
    """The bug of a release that makes options harmful."""
    if not release.is_at_least("1.29"):
        return "B1"
    return "B3" if release.is_at_least("1.35") else ""


def _they_hold(stage: Stage) -> None:
    def holds() -> None:
        assert len(stage.cluster.nodes("patient")) == 1, "the node went although its group is patient"

    stage.wait_for_loops(_LOOPS, holds)
    assert not _warnings(stage), "nothing was withheld"
    stage.settle({"patient": 1})


def _they_were_withheld(stage: Stage, harm: str) -> None:
    stage.until_equal(lambda: len(stage.cluster.nodes("patient")), 0, "the number of patient nodes")
    stage.settle({})
    warnings = _warnings(stage)
    assert len(warnings) == 1, f"it is told once: {warnings}"
    assert f"({harm})" in warnings[0], f"it says why: {warnings[0]}"


def _warnings(stage: Stage) -> list[str]:
    return [
        str(entry["event"])
        for entry in stage.server.log_entries()
        if entry.get("level") == "warning" and entry.get("logger") == "cloudgraft.service" and "group" in entry
    ]


SCENARIO: Final = Scenario(
    number=8, seconds=25, title="options of a group hold where they can, and are withheld where they harm", run=_run
)
