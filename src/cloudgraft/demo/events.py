"""What happens during the day, and what is seen of a group: the values that the views and the checks work with."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from cloudgraft.demo.decide import Shape
from cloudgraft.sdk import Instance, InstanceState

__all__ = ["Event", "GroupState", "Kind", "plural", "short_name"]


class Kind(enum.Enum):
    """The kinds of things that happen; the value is shown in front of a line."""

    START = "start"
    WORK = "work"
    SCALE_UP = "scale-up"
    REGISTERED = "register"
    OUT_OF_STOCK = "no stock"
    FALLBACK = "fallback"
    CRASH = "crash"
    RESTART = "restart"
    DONE = "done"
    SCALE_DOWN = "scale-down"
    GONE = "gone"
    NIGHT = "night"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something worth telling."""

    kind: Kind
    time: float
    headline: str
    detail: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A node group as the client's answers describe it."""

    id: str
    min_size: int
    max_size: int
    target: int
    shape: Shape
    instances: tuple[Instance, ...] = ()
    price: float = 0.0  # per hour and node
    backed_off: bool = False

    @property
    def failed(self) -> tuple[Instance, ...]:
        """The instances that could not be created (R34)."""
        return tuple(
            instance
            for instance in self.instances
            if instance.state is InstanceState.CREATING and instance.error is not None
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way: every instance runs, and there are as many as asked for."""
        running = sum(instance.state is InstanceState.RUNNING for instance in self.instances)
        return running == len(self.instances) == self.target


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def short_name(provider_id: str) -> str:
    """The part of an instance's id that people recognise."""
    return provider_id.rpartition("/")[2]
