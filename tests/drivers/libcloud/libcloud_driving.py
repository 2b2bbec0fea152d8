"""A libcloud driver for a fake cloud, and a machine for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from cloudgraft.sdk.driver import MachineSpec
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_fake import Fake

NAME = "lab-k3x7abcdef-small-0a1b2c3d-abcdefgh"
TAGS = {
    "cloudgraft-cluster": "Lab / Zürich",
    "cloudgraft-cluster-id": "k3x7abcdef",
    "cloudgraft-group": "small",
    "cloudgraft-name": NAME,
}
USER_DATA = "#cloud-config\nruncmd: [join --token a-very-secret-token]\n"


@contextmanager
def opened(provider: str) -> Iterator[Fake]:
    with Fake(CLOUDS[provider].make()) as fake:
        yield fake


def driver(provider: str, fake: Fake, directory: Path, **changes: Any) -> LibcloudDriver:
    case = CLOUDS[provider]
    secret = directory / "secret"
    if not secret.exists():
        secret.write_text(case.secret())
    given = {"endpoint": f"{fake.url}{case.path}", **case.options, **changes}
    return LibcloudDriver(LibcloudOptions(provider=provider, secret_file=secret, **given))


def spec(provider: str, **changes: Any) -> MachineSpec:
    given = {"name": NAME, "group": "small", "settings": CLOUDS[provider].machine, "tags": TAGS}
    return MachineSpec(**{**given, "user_data": USER_DATA, **changes})
