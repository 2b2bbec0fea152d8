"""Defines the timetable of the demo's day: how its time is counted, and which pods come when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cloudgraft.sdk import Container, Pod, Quantity

# -- time --------------------------------------------------------------------------------------------------------------
# Seconds since midnight.


MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
_MIDNIGHT: Final = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday; prices are asked for by date


def seconds_at(text: str) -> float:
    """The seconds since midnight at ``07:30``."""
    hours, _, minutes = text.partition(":")
    return int(hours) * HOUR + int(minutes) * MINUTE


def clock_time(seconds: float) -> str:
    """The time of day: ``07:30``."""
    minutes = int(seconds // MINUTE)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def date_time(seconds: float) -> datetime:
    """That moment of the demo's day, for calls that want a date."""
    return _MIDNIGHT + timedelta(seconds=seconds)


# -- work --------------------------------------------------------------------------------------------------------------
# Which pods come when, what they request, and when they finish.


GPU_POOL: Final = {"pool": "gpu"}  # the label of nodes with an accelerator, and the key of the taint that guards them


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """A pod as the scheduler sees it."""

    name: str
    milli_cpu: int
    ends_at: float = float("inf")
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerates: frozenset[str] = frozenset()  # keys of taints

    def as_pod(self) -> Pod:
        """The pod for a call that asks for its price."""
        requests = {"cpu": Quantity(f"{self.milli_cpu}m")}
        containers = (Container(name="main", requests=requests),)
        return Pod(name=self.name, namespace="default", node_selector=self.selector, containers=containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Pods that come together and finish one after the other."""

    name: str
    arrives: float
    count: int
    milli_cpu: int
    first_ends: float
    ends_every: float = 10 * MINUTE
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerates: frozenset[str] = frozenset()
    newest_first: bool = True  # whether the last to come is the first to finish
    coming: str  # the headlines
    ending: str

    def pods(self) -> tuple[PodSpec, ...]:
        """The wave's pods, in the order in which they come."""
        numbers = range(1, self.count + 1)
        turns = reversed(numbers) if self.newest_first else numbers
        return tuple(
            PodSpec(
                name=f"{self.name}-{number}",
                milli_cpu=self.milli_cpu,
                ends_at=self.first_ends + (turn - 1) * self.ends_every,
                selector=self.selector,
                tolerates=self.tolerates,
            )
            for number, turn in zip(numbers, turns, strict=True)
        )


def waves_of_the_day() -> tuple[Wave, ...]:
    """A shop's day: it opens, it is noon, a model is trained, it closes."""
    return (
        Wave(
            name="web",
            arrives=seconds_at("07:00"),
            count=6,
            milli_cpu=500,
            first_ends=seconds_at("20:30"),
            newest_first=False,  # so that both nodes end up half empty, and one can be drained onto the other
            coming="the shop opens",
            ending="the shop closes",
        ),
        Wave(
            name="lunch",
            arrives=seconds_at("12:00"),
            count=12,
            milli_cpu=1000,
            first_ends=seconds_at("16:30"),
            coming="the lunch rush begins",
            ending="the lunch rush ebbs away",
        ),
        Wave(
            name="train",
            arrives=seconds_at("14:00"),
            count=1,
            milli_cpu=4000,
            first_ends=seconds_at("15:30"),
            selector=GPU_POOL,
            tolerates=frozenset(GPU_POOL),
            coming="a model is to be trained",
            ending="the model is trained",
        ),
    )
