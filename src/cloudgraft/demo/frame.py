"""One moment of the demo as a value, for whoever shows it, and the figures of the whole day."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from cloudgraft.demo.calls import CallRecord, RpcFigures
from cloudgraft.demo.events import Event, GroupState, Kind
from cloudgraft.demo.world import Books

__all__ = ["Frame", "NodeRow", "Pace", "Presenter", "Summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node and how full it is."""

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
    is_up: bool  # whether anybody listens there
    events: tuple[Event, ...]  # so far, the newest last
    is_news: bool  # the newest has just happened
    is_busy: bool  # something is on its way
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
    """Shows the demo to somebody."""

    async def show(self, frame: Frame) -> None:
        """Shows a moment, for as long as somebody needs to take it in."""


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
