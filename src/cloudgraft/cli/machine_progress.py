"""Tells from status reports how far ordered or removed machines have come. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

READY: Final = "ready"
FAILED: Final = "failed"
GONE: Final = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine on its way, as last reported."""

    name: str
    stage: str  # for people: its state, or how far its node is
    outcome: str = ""  # ready, failed or gone; empty while it is on its way
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The machines of an order."""

    machines: Sequence[Machine]
    nodes_watched: bool = False

    @property
    def is_over(self) -> bool:
        """Whether every machine has come to its end."""
        return all(machine.outcome for machine in self.machines)

    def with_outcome(self, *outcomes: str) -> list[Machine]:
        """The machines that ended so; an empty outcome is that of machines on their way."""
        return [machine for machine in self.machines if machine.outcome in outcomes]

    def line(self) -> str:
        """How many machines are at which stage."""
        counted = Counter(machine.stage for machine in self.machines)
        return ", ".join(f"{count} {stage}" for stage, count in counted.items()) or "no machines"


def counted_names(report: Mapping[str, Any]) -> list[str]:
    """The machines of the report's group that count for its target."""
    return [machine["name"] for group in report["groups"] for machine in group["machines"] if not _is_leaving(machine)]


def progress(report: Mapping[str, Any], names: Collection[str]) -> Progress:
    """How far these machines are, by the report of their group. One that is not in it is gone."""
    known = {machine["name"]: machine for group in report["groups"] for machine in group["machines"]}
    watched = bool(report.get("nodesWatched"))
    return Progress(
        machines=[
            _machine(known[name], is_watched=watched) if name in known else Machine(name=name, stage=GONE, outcome=GONE)
            for name in names
        ],
        nodes_watched=watched,
    )


def _machine(machine: Mapping[str, Any], *, is_watched: bool) -> Machine:
    name, state = machine["name"], machine["state"]
    if state == "failed":
        error = machine["error"]
        return Machine(name=name, stage=state, outcome=FAILED, error=f"{error['code']}: {error['message']}")
    if state != "running":
        return Machine(name=name, stage=state, error=machine.get("trouble") or "")
    node = machine.get("node")
    if not is_watched or (node is not None and node["state"] == "ready"):
        return Machine(name=name, stage=READY, outcome=READY)
    stage = "running without a node yet" if node is None else f"running, its node is {node['state']}"
    return Machine(name=name, stage=stage)


def _is_leaving(machine: Mapping[str, Any]) -> bool:
    return bool(machine["state"] == "deleting")
