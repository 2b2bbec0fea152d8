"""Builds discovery's HTTPS application, and runs its periodic work."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from cloudgraft._version import __version__
from cloudgraft.discovery.api.clusters import cluster_routes, legacy_routes
from cloudgraft.discovery.api.market import market_routes
from cloudgraft.discovery.model import ClusterState
from cloudgraft.discovery.service import Discovery
from cloudgraft.sdk.errors import CloudgraftError
from cloudgraft.web.app import make_app
from cloudgraft.web.authentication import AuditLog, Gatekeeper

_ABOUT = (
    "Which remote clusters share resources, how much, at what price: clusters, offers and reservations. "
    "Quantities are Kubernetes' own texts; money is a decimal text and an ISO currency, per hour."
)


async def _always() -> str:
    return ""


def discovery_app(
    core: Discovery,
    *,
    gatekeeper: Gatekeeper,
    audit: AuditLog,
    ready: Callable[[], Awaitable[str]] = _always,
    metrics: CollectorRegistry | None = None,
    legacy_list: bool = False,
) -> FastAPI:
    """Builds the application. ``ready`` returns the reason why it is not ready; empty when it is."""
    routers = [cluster_routes(core), market_routes(core)]
    if legacy_list:
        routers.append(legacy_routes(core))
    return make_app(
        title="cloudgraft discovery",
        version=__version__,
        description=_ABOUT,
        routers=routers,
        gatekeeper=gatekeeper,
        audit=audit,
        ready=ready,
        metrics=metrics if metrics is not None else CollectorRegistry(),
    )


# -- Periodic work -----------------------------------------------------------------------------------------------------


_LOG = logging.getLogger("cloudgraft.discovery")
_EVERY: Final = 15.0


class PeriodicWork:
    """Removes expired reservations and updates gauges until cancelled. Logs an error once, and retries."""

    def __init__(self, core: Discovery, registry: CollectorRegistry, *, every: float = _EVERY) -> None:
        self._core = core
        self._every = every
        self._trouble = False
        self._clusters = Gauge(
            "cloudgraft_discovery_clusters", "Clusters that are known, by state.", ["state"], registry=registry
        )
        self._reservations = Gauge(
            "cloudgraft_discovery_reservations", "Reservations that are alive, by state.", ["state"], registry=registry
        )

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self.once()
                self._trouble = False
            except CloudgraftError as error:
                _LOG.log(logging.DEBUG if self._trouble else logging.WARNING, "cannot clean up: %s", error.message)
                self._trouble = True
            await asyncio.sleep(self._every)

    async def once(self) -> None:
        """Removes expired reservations, and updates the gauges."""
        await self._core.expire()
        states = Counter(cluster.state for cluster in await self._core.clusters())
        for state in ClusterState:
            self._clusters.labels(state=state.value).set(states[state])
        held = Counter(one.state.value for one in await self._core.reservations(""))
        for name in ("held", "confirmed"):
            self._reservations.labels(state=name).set(held[name])
