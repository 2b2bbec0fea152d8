"""Drivers of the fake OpenStack, and orders for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.drivers.openstack.driver import OpenstackDriver
from cloudgraft.drivers.openstack.options import OpenstackOptions
from cloudgraft.sdk.driver import MachineSpec
from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack

MACHINE: Mapping[str, object] = {"shape": "m1.tiny", "image": "cirros", "networks": ["inside"]}
TAGS: Mapping[str, str] = {"cloudgraft-cluster-id": "abcdefghij", "cloudgraft-name": "one"}


def options(cloud: FakeOpenstack, directory: Path, *, password: str = PASSWORD, **extra: Any) -> OpenstackOptions:
    """As a file would say them; a password in a file."""
    file = directory / f"password-{len(password)}"
    file.write_text(f"{password}\n")
    given: dict[str, Any] = {
        "auth_url": cloud.auth_url,
        "username": "judge",
        "project": "lab",
        "password_file": file,
        "timeout": timedelta(seconds=20),
    }
    return OpenstackOptions(**{**given, **extra})


def driver(cloud: FakeOpenstack, directory: Path, *, password: str = PASSWORD, **extra: Any) -> OpenstackDriver:
    """One for that cloud."""
    return OpenstackDriver(options(cloud, directory, password=password, **extra))


def spec(name: str = "one", *, user_data: str = "", tags: Mapping[str, str] = TAGS, **settings: object) -> MachineSpec:
    """An order; ``settings`` beside those that it needs."""
    return MachineSpec(name=name, group="pool", settings={**MACHINE, **settings}, tags=tags, user_data=user_data)
