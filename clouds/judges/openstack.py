"""The driver `openstack`, judged by a real control plane with Nova's fake hypervisor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.openstack.driver import OpenstackDriver
from cloudgraft.drivers.openstack.options import OpenstackOptions
from clouds.judge import Case, Judge, Tell
from clouds.servers.openstack.bootstrap import IMAGE, NETWORK, PROJECT, USER
from clouds.servers.openstack.checks import Checks
from clouds.servers.openstack.configs import PAGE
from clouds.servers.openstack.control_plane import ControlPlane, control_plane
from clouds.servers.openstack.install import RELEASE, missing
from clouds.servers.openstack.site import PASSWORD, REGION

__all__ = ["JUDGE"]

_MACHINE: Final[Mapping[str, object]] = {"shape": "judge.small", "image": IMAGE, "networks": [NETWORK]}


class OpenstackJudge(Judge):
    """Real in all but the virtual machines."""

    driver = "openstack"

    def missing(self) -> str:
        """MariaDB and RabbitMQ must be there; OpenStack itself is installed on the way."""
        return missing()

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[Case]:
        """Takes a minute or two; the first time, some minutes more for the installation."""
        with control_plane(directory / "openstack", tell) as plane:
            yield self._case(directory, plane)

    def _case(self, directory: Path, plane: ControlPlane) -> Case:
        password = directory / "password"
        password.write_text(PASSWORD, "utf-8")
        cloud: dict[str, Any] = {
            "driver": self.driver,
            "authUrl": plane.site.auth_url,
            "username": USER,
            "project": PROJECT,
            "passwordFile": str(password),
            "region": REGION,
        }
        checks = Checks(directory, plane, cloud, _MACHINE)
        return Case(
            judged_by=f"{RELEASE}, with its fake hypervisor",
            cloud=cloud,
            settings=DriverSettings(
                machine=_MACHINE,
                at_once=3,
                page_size=PAGE,
                interruptions=3,
                boot_time=timedelta(minutes=3),
                patience=timedelta(minutes=2),
                late=timedelta(seconds=5),
                secrets=(PASSWORD,),
                troubled=lambda trouble: _troubled(trouble, directory, plane),
            ),
            alive=plane.names,
            boot_time=timedelta(minutes=4),
            more=checks.all(),
        )


def _troubled(trouble: Trouble, directory: Path, plane: ControlPlane) -> OpenstackDriver | None:
    """One that nobody knows, and one whose cloud is not there."""
    wrong = directory / "wrong-password"
    wrong.write_text("not-the-password", "utf-8")
    urls = {Trouble.AUTHENTICATION: plane.site.auth_url, Trouble.AWAY: "http://127.0.0.1:9/v3"}
    if trouble not in urls:
        return None
    return OpenstackDriver(
        OpenstackOptions(auth_url=urls[trouble], username=USER, project=PROJECT, password_file=wrong, region=REGION)
    )


JUDGE = OpenstackJudge()
