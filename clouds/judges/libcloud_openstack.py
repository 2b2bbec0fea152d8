"""The driver `libcloud` with OpenStack: the real control plane that judges the driver `openstack` too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from cloudgraft.conformance.driver import DriverSettings
from clouds.judge import Case, Judge, Tell
from clouds.servers.openstack.bootstrap import FLAVORS, IMAGE, NETWORK, PROJECT, USER
from clouds.servers.openstack.configs import PAGE
from clouds.servers.openstack.control_plane import ControlPlane, control_plane
from clouds.servers.openstack.install import RELEASE, missing
from clouds.servers.openstack.site import PASSWORD, REGION

__all__ = ["JUDGE"]

_SHAPE: Final = next(iter(FLAVORS))


class LibcloudOpenstackJudge(Judge):
    """Real in all but the virtual machines."""

    driver = "libcloud"

    def missing(self) -> str:
        """As for the driver `openstack`."""
        return missing()

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Takes a minute or two; the first time, some minutes more for the installation."""
        with control_plane(directory / "openstack", tell) as plane:
            yield self._case(directory, plane)

    def _case(self, directory: Path, plane: ControlPlane) -> Case:
        password = directory / "password"
        password.write_text(PASSWORD, "utf-8")
        machine = {  # libcloud wants ids
            "shape": _SHAPE,
            "image": plane.user.image.find_image(IMAGE).id,
            "networks": [plane.user.network.find_network(NETWORK).id],
        }
        return Case(
            judged_by=f"{RELEASE}, with its fake hypervisor",
            cloud={
                "driver": self.driver,
                "provider": "OPENSTACK",
                "endpoint": plane.site.auth_url,
                "key": USER,
                "project": PROJECT,
                "secretFile": str(password),
                "region": REGION,
            },
            settings=DriverSettings(
                machine=machine,
                at_once=3,
                page_size=PAGE,
                interruptions=3,
                boot_time=timedelta(minutes=3),
                patience=timedelta(minutes=2),
                late=timedelta(seconds=5),
                secrets=(PASSWORD,),
            ),
            alive=plane.names,
            boot_time=timedelta(minutes=4),
        )


JUDGE: Final = LibcloudOpenstackJudge()
