"""A driver for a fake project, and machines to order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from cloudgraft.drivers.hetzner.driver import HetznerDriver
from cloudgraft.drivers.hetzner.options import HetznerOptions
from cloudgraft.sdk.driver import MachineSpec
from clouds.servers.hetzner_fake import FakeHetzner

MACHINE = {"shape": "cx23", "image": "ubuntu-24.04"}


def hetzner_driver(fake: FakeHetzner, directory: Path, *, token: str = "", **options: Any) -> HetznerDriver:
    file = directory / "token"
    file.write_text(f"{token or fake.token}\n", "utf-8")
    given = {"endpoint": fake.url, "location": "fsn1", "list_delay": timedelta(0), **options}
    return HetznerDriver(HetznerOptions(token_file=file, **given))


def spec(
    name: str, *, group: str = "pool", cluster: str = "c1", user_data: str = "", **settings: object
) -> MachineSpec:
    tags = {
        "cloudgraft-cluster": "lab",
        "cloudgraft-cluster-id": cluster,
        "cloudgraft-group": group,
        "cloudgraft-name": name,
    }
    return MachineSpec(name=name, group=group, settings={**MACHINE, **settings}, tags=tags, user_data=user_data)
