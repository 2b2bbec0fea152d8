"""What the demo needs of the world beside a provider: time that can be told to pass, and the machines that are up.

The day is played against :class:`World` and nothing else, so a real engine with a simulated cloud fits under it as
well as the provider in memory does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from cloudgraft.demo.cluster import Machine
from cloudgraft.demo.decide import Shape
from cloudgraft.demo.times import MINUTE, seconds_at
from cloudgraft.demo.workload import GPU_POOL
from cloudgraft.sdk import AutoscalingOptions, InstanceState, Provider, Taint
from cloudgraft.sdk.duration import parse_duration
from cloudgraft.testing.memory import MemoryGroup, MemoryOptions, MemoryProvider

__all__ = ["GROUPS", "MemoryWorld", "World"]

_BOOT: Final = 9 * MINUTE
_STOP: Final = 6 * MINUTE

GROUPS: Final = (
    MemoryGroup(
        id="small",
        max_size=8,
        cpu="2",
        memory="8Gi",
        labels={"pool": "small"},
        hourly_price=0.04,
        stock=4,  # fewer than max: the cloud will run out
        boot_seconds=_BOOT,
        delete_seconds=_STOP,
    ),
    MemoryGroup(
        id="large",
        max_size=4,
        cpu="8",
        memory="32Gi",
        labels={"pool": "large"},
        hourly_price=0.20,
        boot_seconds=_BOOT,
        delete_seconds=_STOP,
    ),
    MemoryGroup(
        id="gpu",
        max_size=2,
        cpu="8",
        memory="64Gi",
        labels=GPU_POOL,
        taints=tuple(Taint(key=key, value=value) for key, value in GPU_POOL.items()),
        hourly_price=1.80,
        boot_seconds=_BOOT,
        delete_seconds=_STOP,
        options=AutoscalingOptions(scale_down_unneeded_time=parse_duration("5m")),  # too dear to idle for long
    ),
)


class World(Protocol):
    """Time and machines, behind a provider."""

    @property
    def provider(self) -> Provider:
        """What is to be served."""

    def now(self) -> float:
        """The demo's time, in seconds since midnight."""

    async def advance(self, seconds: float) -> None:
        """Lets time pass; when it returns, everything that was due has happened."""

    async def machines(self) -> Sequence[Machine]:
        """The machines that are up, those being shut down included: each has, or is about to have, a node."""


class MemoryWorld:
    """The provider in memory, on a clock that only moves when it is told to."""

    def __init__(self, groups: Sequence[MemoryGroup] = GROUPS, *, begins: float = seconds_at("06:00")) -> None:
        self._now = begins
        self._groups = tuple(group.id for group in groups)
        self._provider = MemoryProvider(MemoryOptions(groups=tuple(groups)), clock=self.now)

    @property
    def provider(self) -> Provider:
        """The provider in memory."""
        return self._provider

    def now(self) -> float:
        """The demo's time."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Moves the clock; the machines of this provider follow it by themselves."""
        self._now += seconds

    async def machines(self) -> Sequence[Machine]:
        """All that run or are being deleted; what never ran has no node."""
        up = (InstanceState.RUNNING, InstanceState.DELETING)
        return [
            Machine(provider_id=instance.id, shape=Shape.of(await self._provider.template(group)))
            for group in self._groups
            for instance in await self._provider.instances(group)
            if instance.state in up and instance.error is None
        ]
