"""What a new cloud needs before anybody can have a server: a catalogue, a project, an image, flavours, a network."""

from __future__ import annotations

from typing import Any, Final

import openstack

from clouds.servers.openstack.site import PASSWORD, REGION, Site

__all__ = ["FLAVORS", "IMAGE", "NETWORK", "PROJECT", "USER", "connect", "furnish", "publish", "set_quota"]

PROJECT: Final = "judged"
USER: Final = "cloudgraft"
IMAGE: Final = "tiny-image"
NETWORK: Final = "inside"
FLAVORS: Final = {"judge.small": (1, 2048), "judge.huge": (4096, 2048)}  # CPUs and MiB; no fake host has so many CPUs
_PATHS: Final = {"placement": "", "image": "", "network": "", "compute": "/v2.1"}


def connect(site: Site, user: str, project: str) -> Any:
    """The library's own client; what it tells is not what the driver tells."""
    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth_url=site.auth_url,
        username=user,
        password=PASSWORD,
        project_name=project,
        user_domain_name="Default",
        project_domain_name="Default",
        region_name=REGION,
        api_timeout=60,
    )


def publish(site: Site, admin: Any) -> None:
    """The catalogue, and the role by which services trust each other."""
    for name, path in _PATHS.items():
        service = admin.identity.create_service(type=name, name=name)
        for interface in ("public", "internal"):
            admin.identity.create_endpoint(
                service_id=service.id, interface=interface, url=f"{site.url(name)}{path}", region_id=REGION
            )
    role = admin.identity.find_role("service") or admin.identity.create_role(name="service")
    project = admin.identity.find_project("admin")
    admin.identity.assign_project_role_to_user(project, admin.identity.find_user("admin"), role)


def furnish(admin: Any) -> str:
    """What is left, once all services answer; returns the project's id."""
    project = admin.identity.create_project(name=PROJECT, domain_id="default")
    user = admin.identity.create_user(name=USER, password=PASSWORD, domain_id="default")
    admin.identity.assign_project_role_to_user(project, user, admin.identity.find_role("member"))
    image = admin.image.create_image(
        name=IMAGE, disk_format="raw", container_format="bare", visibility="public", data=b"\0" * 1024
    )
    assert image is not None
    for name, (cpus, memory) in FLAVORS.items():
        admin.compute.create_flavor(name=name, vcpus=cpus, ram=memory, disk=1)
    network = admin.network.create_network(name=NETWORK, project_id=project.id)
    admin.network.create_subnet(
        name=NETWORK, network_id=network.id, project_id=project.id, ip_version=4, cidr="10.9.0.0/16"
    )
    set_quota(admin, project.id, -1)
    return str(project.id)


def set_quota(admin: Any, project: str, servers: int) -> None:
    """How many servers the project may have; -1 is no limit. Whatever else they need has none."""
    admin.compute.update_quota_set(project, instances=servers, cores=-1, ram=-1)
    admin.network.update_quota(project, port=-1)
