"""Defines the result of a run, and what it shows while it goes on."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudgraft.torture.judge import ADVICE, Finding


class Verdict(enum.Enum):
    """The outcome of a run."""

    HELD = "held"
    VIOLATED = "violated"
    INCONCLUSIVE = "could not be judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a run will do, for the person who has to agree."""

    group: str
    cloud: str
    driver: str
    cluster: str
    machines: int
    creates: int
    kills: int
    minutes: float
    settle_seconds: float  # at most, after the last kill
    foreign: int  # machines of others in the cloud's list
    hourly: str = ""  # the price of one machine, if it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The state of a run at one moment."""

    phase: str
    kills: int
    planned: int
    alive: int  # machines of the run in the latest list
    ordered: int
    seconds_left: float  # until the last kill, at most
    line: str = ""  # something worth a line of its own


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a run."""

    group: str
    cluster: str
    cluster_id: str
    seed: int
    directory: Path
    planned: int
    kills: dict[str, int] = field(default_factory=dict)  # by moment
    ordered: int = 0
    machines: int = 0  # that the cloud made
    most: int = 0  # of them at a time
    lists: int = 0
    seconds: float = 0.0
    restart_seconds: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    trouble: str = ""  # why it could not be judged, or not to its end
    history: Sequence[str] = ()  # the last lines before it ended
    left_behind: Sequence[str] = ()
    cleanup_trouble: str = ""  # why it is not known what is left behind
    is_clean: bool = False  # lists have shown that no machine of it is left

    @property
    def violations(self) -> list[Finding]:
        """What was broken."""
        return [finding for finding in self.findings if not finding.is_note]

    @property
    def notes(self) -> list[Finding]:
        """What happened, and is allowed."""
        return [finding for finding in self.findings if finding.is_note]

    @property
    def kills_done(self) -> int:
        """The number of kills."""
        return sum(self.kills.values())

    @property
    def verdict(self) -> Verdict:
        """A violation counts even if the run could not be finished."""
        if self.violations or self.left_behind:
            return Verdict.VIOLATED
        return Verdict.INCONCLUSIVE if self.trouble or self.cleanup_trouble else Verdict.HELD

    def to_json(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "verdict": {Verdict.INCONCLUSIVE: "inconclusive"}.get(self.verdict, self.verdict.value),
            "group": self.group,
            "cluster": self.cluster,
            "clusterId": self.cluster_id,
            "seed": self.seed,
            "kills": {"planned": self.planned, "done": self.kills_done, "byMoment": dict(self.kills)},
            "machines": {"ordered": self.ordered, "made": self.machines, "mostAtATime": self.most},
            "lists": self.lists,
            "seconds": round(self.seconds, 1),
            "violations": [_finding(one) for one in self.violations],
            "notes": [_finding(one) for one in self.notes],
            "trouble": self.trouble,
            "history": list(self.history),
            "leftBehind": list(self.left_behind),
            "cleanupTrouble": self.cleanup_trouble,
            "directory": str(self.directory) if self.directory.exists() else None,
        }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "rule": finding.rule.name.lower(),
        "meaning": finding.rule.value,
        "what": finding.what,
        "advice": ADVICE[finding.rule],
    }
