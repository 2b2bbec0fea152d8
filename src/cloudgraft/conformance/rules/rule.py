"""One rule of the contract: what a server must do, why it matters to the cluster, and how its author puts it right."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is when a server breaks a rule."""

    MUST = "must"
    """The autoscaler crashes or stops, or machines are lost or bought twice."""
    SHOULD = "should"
    """It works, but badly: late, wasteful or misleading."""
    NOTE = "note"
    """Nothing breaks by itself; the author of a server does well to know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One numbered rule (R1, R2, ...) or trace (T1, T2, ...)."""

    id: str
    title: str
    """What holds, in one sentence."""
    level: Level
    why: str
    """What the user of the cluster suffers when a server breaks it."""
    fix: str
    """What the author of the server does about it."""
    unobservable: str = ""
    """Why nothing from outside can see it; empty when at least one check names the rule."""
