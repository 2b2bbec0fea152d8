"""Runs the conformance suite for drivers over a socket, with the fake OpenStack."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble
from cloudgraft.drivers.openstack.driver import OpenstackDriver
from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack, Fault
from clouds.servers.openstack_fake_state import Project
from tests.conditions import until
from tests.conformance.judging import judged
from tests.conformance.test_driver_processes import NO_LOSS, NO_PROCESS, passed
from tests.drivers.openstack.openstack_clouds import MACHINE, driver

# Nova's create is not idempotent, which three of the checks are about; it tells no prices.
SKIPPED = (
    NO_LOSS,
    NO_PROCESS,
    "a_second_create_adds_nothing",
    "a_second_create_is_answered_as_declared",
    "two_creates_of_one_name_at_once",
    "prices_are_sane",
)


@pytest.mark.timeout(240)  # its checks are many, and the machine may be busy
@pytest.mark.thorough
async def test_openstack_keeps_every_rule_for_drivers(tmp_path: Path) -> None:
    full = Fault(method="POST", path="/servers", status=403, message="Quota exceeded for instances: already used 10")
    busy = Fault(method="POST", path="/servers", status=429, headers={"Retry-After": "7"})
    with FakeOpenstack(Project(page=6)) as cloud, FakeOpenstack() as troubled_cloud:

        def troubled(trouble: Trouble) -> OpenstackDriver | None:
            faults = {Trouble.QUOTA: [full], Trouble.RATE_LIMIT: [busy]}
            troubled_cloud.faults[:] = faults.get(trouble, [])
            match trouble:
                case Trouble.QUOTA | Trouble.RATE_LIMIT:
                    return driver(troubled_cloud, tmp_path)
                case Trouble.AUTHENTICATION:
                    return driver(troubled_cloud, tmp_path, password="a-wrong-one")
                case Trouble.AWAY:
                    return driver(cloud, tmp_path, auth_url="http://127.0.0.1:9/v3")
            return None

        settings = DriverSettings(
            machine=MACHINE,
            at_once=3,
            page_size=6,
            interruptions=2,
            secrets=(PASSWORD,),
            troubled=troubled,
        )
        report = await judged(lambda: driver(cloud, tmp_path), settings)
        await until(lambda: swept(cloud, driver(cloud, tmp_path)), what="nothing is left")
    passed(report, *SKIPPED)


def swept(cloud: FakeOpenstack, one: OpenstackDriver) -> bool:
    """Creates that were given up go on, and on a slow machine one of them ends after all has been swept."""
    for machine in one.list():
        one.delete(machine)
    one.close()
    return not cloud.project.servers
