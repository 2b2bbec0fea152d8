"""Defines the events of the day, and one moment of it as a value: the input of views and checks."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cloudgraft.demo.calls import CallRecord, RpcFigures
from cloudgraft.demo.decide import Shape
from cloudgraft.sdk import Instance, InstanceState

# -- events ------------------------------------------------------------------------------------------------------------
# What happens during the day, and the state of a group: the input of views and checks.


class Kind(enum.Enum):
    """The kinds of events; the value is shown in front of a line."""

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
    """One event."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashState:
    """The journal's content after a crash, and what the cloud has made."""

    machines: int  # that the journal has
    unknown: int  # of them, those that were ordered and whose answer was never seen
    ordered: Sequence[str]  # machines that the cloud has made all the same, by the names of their future nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The figures of the cloud's own ledger, and their differences from the journal."""

    machines: int  # made since the morning
    cost: float  # of all of them
    lost: int  # machines that only one of the two knows
    doubled: int  # machines made beyond one for each intent


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def short_name(provider_id: str) -> str:
    """The part of an instance's id that people recognise."""
    return provider_id.rpartition("/")[2]


# -- frames and summary ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node and its utilisation."""

    name: str
    used_milli_cpu: int
    milli_cpu: int
    pods: int
    leaving: bool = False
    unneeded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything that can be seen at one moment."""

    time: float
    begins: float
    ends: float
    address: str
    is_up: bool  # whether the server listens
    events: tuple[Event, ...]  # so far, the newest last
    is_news: bool  # the newest has just happened
    is_busy: bool  # machines are being created or deleted
    groups: tuple[GroupState, ...]
    nodes: tuple[NodeRow, ...]
    pods_pending: int
    pods_running: int
    pods_finished: int
    calls: tuple[CallRecord, ...]
    calls_total: int
    cost: float
    cost_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The day in figures."""

    loops: int
    calls: tuple[RpcFigures, ...]
    machines_created: int
    machines_failed: int
    machines_deleted: int
    most_machines: int
    most_milli_cpu: int
    pods_finished: int
    cost: float  # as the client has counted it
    books: Books  # as the cloud has
    seconds: float
    events: tuple[Event, ...]

    @property
    def calls_total(self) -> int:
        """All calls over the wire."""
        return sum(figures.count for figures in self.calls)


class Presenter(Protocol):
    """Shows the demo."""

    async def show(self, frame: Frame) -> None:
        """Shows a moment, for as long as a person needs to read it."""


_HOLD: Final = {
    Kind.START: 1.5,
    Kind.WORK: 1.0,
    Kind.SCALE_UP: 1.3,
    Kind.REGISTERED: 0.9,
    Kind.OUT_OF_STOCK: 2.0,
    Kind.FALLBACK: 2.0,
    Kind.CRASH: 2.5,
    Kind.RESTART: 2.5,
    Kind.DONE: 0.8,
    Kind.SCALE_DOWN: 0.6,
    Kind.GONE: 0.15,
    Kind.NIGHT: 1.5,
}


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a moment is shown: news longer than the steps between. A speed of None does not wait at all."""

    speed: float | None

    def seconds(self, frame: Frame) -> float:
        """The time that this frame gets."""
        if self.speed is None:
            return 0.0
        calm = 0.1 if frame.is_busy else 0.05
        return (_HOLD[frame.events[-1].kind] if frame.is_news else calm) / self.speed

    async def wait(self, frame: Frame) -> None:
        """Waits that long."""
        await asyncio.sleep(self.seconds(frame))
