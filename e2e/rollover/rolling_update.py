"""Decides which pods a Deployment ends and starts next, as Kubernetes' own controller does. Pure.

After ``pkg/controller/deployment/rolling.go`` of Kubernetes: pods of the old template that are not ready go first, and
never so many go that fewer pods are available than the strategy allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Step", "Strategy", "next_step"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The numbers of a Deployment."""

    replicas: int
    max_surge: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now."""

    start: int = 0  # pods of the new template
    end: Sequence[int] = ()  # the positions of old pods


def next_step(strategy: Strategy, old_ready: Sequence[bool], new_ready: Sequence[bool]) -> Step:
    """``old_ready`` and ``new_ready``: whether each pod that is not being ended is available, by template."""
    total = len(old_ready) + len(new_ready)
    room = min(strategy.replicas + strategy.max_surge - total, strategy.replicas - len(new_ready))
    if room > 0:
        return Step(start=room)
    least = strategy.replicas - strategy.max_unavailable
    may_end = total - least - new_ready.count(False)
    if may_end <= 0:
        return Step()
    unready = [position for position, is_ready in enumerate(old_ready) if not is_ready][:may_end]
    surplus = list(old_ready).count(True) + list(new_ready).count(True) - least
    ready = [position for position, is_ready in enumerate(old_ready) if is_ready][: max(0, surplus)]
    return Step(end=(*unready, *ready))
