"""The whole of it, in the order in which one part needs the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clouds.judge import Tell
from clouds.servers.openstack.bootstrap import PROJECT, USER, connect, furnish, publish, set_quota
from clouds.servers.openstack.broker import broker
from clouds.servers.openstack.configs import HOST, etc, write_configs
from clouds.servers.openstack.database import database
from clouds.servers.openstack.install import installed
from clouds.servers.openstack.services import Services, tables
from clouds.servers.openstack.site import Site
from e2e.waiting import until

__all__ = ["ControlPlane", "control_plane"]


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """One that runs, and what can be asked of it without a driver."""

    site: Site
    admin: Any
    user: Any
    project: str

    def servers(self) -> list[Any]:
        """All of the project."""
        return list(self.user.compute.servers())

    def names(self) -> list[str]:
        """Theirs."""
        return [str(server.name) for server in self.servers()]

    def set_quota(self, servers: int) -> None:
        """How many the project may have; -1 is no limit."""
        set_quota(self.admin, self.project, servers)


@contextmanager
def control_plane(home: Path, tell: Tell) -> Iterator[ControlPlane]:
    """Starts it, in about a minute, and stops it."""
    site = Site(home, installed(tell))
    write_configs(site)
    services = Services(site)
    with database(site), broker(site), services.running():
        tell("MariaDB and RabbitMQ are up; making tables ...")
        tables(site)
        tell("starting Keystone and the others ...")
        services.start("identity")
        publish(site, connect(site, "admin", "admin"))
        admin = connect(site, "admin", "admin")  # whose token has the catalogue
        services.start("placement", "image", "network", "compute")
        # Only now: a host that cannot tell Placement at once what it has tells it a minute later.
        services.start("nova-conductor", "nova-scheduler", "nova-compute")
        tell("waiting for Nova's host ...")
        until(lambda: _is_up(admin), "nova-compute has reported", seconds=180, check=services.check)
        until(lambda: _has_room(admin), "Placement knows what the host has", seconds=180, check=services.check)
        site.run("nova-manage", f"--config-dir={etc(site, 'nova')}", "cell_v2", "discover_hosts")
        project = furnish(admin)
        yield ControlPlane(site, admin, connect(site, USER, PROJECT), project)


def _is_up(admin: Any) -> bool:
    services = list(admin.compute.services())
    return any(one.binary == "nova-compute" and one.host == HOST and one.state == "up" for one in services)


def _has_room(admin: Any) -> bool:
    hosts = list(admin.placement.resource_providers())
    return any(True for host in hosts for _ in admin.placement.resource_provider_inventories(host))
