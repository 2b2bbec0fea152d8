"""What a discovery server does by itself now and then: forget what has expired, and count for the metrics."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Gauge

from cloudgraft.discovery.api.ports import Core
from cloudgraft.discovery.model import ClusterState
from cloudgraft.sdk.errors import CloudgraftError

__all__ = ["Chores", "Expiring", "discovery_gauges"]

_LOG = logging.getLogger("cloudgraft.discovery")
_EVERY: Final = 15.0


def discovery_gauges(registry: CollectorRegistry) -> tuple[Gauge, Gauge]:
    """What the metrics tell: clusters, and reservations."""
    clusters = Gauge(
        "cloudgraft_discovery_clusters", "Clusters that are known, by state.", ["state"], registry=registry
    )
    reservations = Gauge(
        "cloudgraft_discovery_reservations", "Reservations that are alive, by state.", ["state"], registry=registry
    )
    return clusters, reservations


class Expiring(Core, Protocol):
    """A core whose expired reservations can be removed."""

    async def expire(self) -> int:
        """Removes what was not confirmed in time: how many."""


class Chores:
    """Works for one core until cancelled. Trouble is told once, and tried again."""

    def __init__(self, core: Expiring, registry: CollectorRegistry, *, every: float = _EVERY) -> None:
        self._core = core
        self._every = every
        self._trouble = False
        self._clusters, self._reservations = discovery_gauges(registry)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.once()
                self._trouble = False
            except CloudgraftError as error:
                _LOG.log(logging.DEBUG if self._trouble else logging.WARNING, "cannot clean up: %s", error.message)
                self._trouble = True
            await asyncio.sleep(self._every)

    async def once(self) -> None:
        """Forgets and counts."""
        await self._core.expire()
        states = Counter(cluster.state for cluster in await self._core.clusters())
        for state in ClusterState:
            self._clusters.labels(state=state.value).set(states[state])
        held = Counter(one.state.value for one in await self._core.reservations(""))
        for name in ("held", "confirmed"):
            self._reservations.labels(state=name).set(held[name])
