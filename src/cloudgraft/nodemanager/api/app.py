"""Builds the node manager's HTTPS application."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from cloudgraft import __version__
from cloudgraft.nodemanager.api.front import front_routes
from cloudgraft.nodemanager.api.groups import group_routes, read_routes
from cloudgraft.nodemanager.manager import Manager
from cloudgraft.web.app import make_app
from cloudgraft.web.audit import AuditLog
from cloudgraft.web.identity import Gatekeeper

ROLES: Final = ("front", "operator", "read-only")
_ABOUT: Final = """Node groups made of machines, for fronts of the Cluster Autoscaler and for operators.

Roles: `front` reads, and grows and shrinks groups; `operator` also declares groups; `read-only` reads. A change is
recorded and answered at once, and goes on as an operation for each machine.
"""


def manager_app(
    manager: Manager, *, gatekeeper: Gatekeeper, audit: AuditLog, metrics: CollectorRegistry | None = None
) -> FastAPI:
    """Builds the application for one engine."""
    return make_app(
        title="cloudgraft node manager",
        version=__version__,
        description=_ABOUT,
        routers=[front_routes(manager), read_routes(manager), group_routes(manager)],
        gatekeeper=gatekeeper,
        audit=audit,
        ready=manager.ready,
        metrics=metrics,
    )
