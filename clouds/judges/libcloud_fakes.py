"""The driver `libcloud` with the clouds that cannot be started here: each by a small fake, under its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cloudgraft.conformance.driver import DriverSettings
from cloudgraft.sdk.common.extras import install_command
from clouds.judge import Case, Judge, Tell
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_fake import Fake

__all__ = ["JUDGES"]

_REAL: Final = "EC2"  # moto plays it better: `libcloud_ec2`
_SMALL: Final[Mapping[str, str]] = {"cpu": "1", "memory": "1Gi"}


class _FakeJudge(Judge):
    driver = "libcloud"

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def missing(self) -> str:
        return "" if find_spec("libcloud") else install_command("libcloud")

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        cloud = CLOUDS[self._provider]
        secret = directory / "secret"
        secret.touch(mode=0o600)
        secret.write_text(cloud.secret(), "utf-8")
        with Fake(cloud.make()) as fake:
            section = {"driver": self.driver, "provider": self._provider, "secretFile": str(secret), "listDelay": "0s"}
            yield Case(
                judged_by=f"{self._provider} by a small fake of ours, by way of libcloud {version('apache-libcloud')}",
                cloud={**section, "endpoint": f"{fake.url}{cloud.path}", **cloud.options},
                settings=DriverSettings(
                    machine=cloud.machine, wrong_machine={"shape": "s"}, at_once=3, interruptions=2, page_size=3
                ),
                alive=fake.cloud.names,
                capacity=None if cloud.has_shapes else _SMALL,
            )


JUDGES: Final[Mapping[str, Judge]] = {
    f"libcloud_{provider.lower()}": _FakeJudge(provider) for provider in CLOUDS if provider != _REAL
}
