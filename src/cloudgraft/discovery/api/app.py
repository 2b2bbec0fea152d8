"""Discovery as an HTTPS application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from cloudgraft._version import __version__
from cloudgraft.discovery.api.clusters import cluster_routes
from cloudgraft.discovery.api.legacy import legacy_routes
from cloudgraft.discovery.api.market import market_routes
from cloudgraft.discovery.api.ports import Core
from cloudgraft.web.app import make_app
from cloudgraft.web.audit import AuditLog
from cloudgraft.web.identity import Gatekeeper

__all__ = ["discovery_app"]

_ABOUT = (
    "Which remote clusters share resources, how much, at what price: clusters, offers and reservations. "
    "Quantities are Kubernetes' own texts; money is a decimal text and an ISO currency, per hour."
)


async def _always() -> str:
    return ""


def discovery_app(
    core: Core,
    *,
    gatekeeper: Gatekeeper,
    audit: AuditLog,
    ready: Callable[[], Awaitable[str]] = _always,
    metrics: CollectorRegistry | None = None,
    legacy_list: bool = False,
) -> FastAPI:
    """The application. ``ready`` gives the reason why it cannot be used now; empty when it can."""
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
