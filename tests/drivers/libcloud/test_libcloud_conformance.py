"""The conformance suite: OpenStack by the fake, EC2 by moto, and the small fakes of the other clouds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, Trouble, judge_driver
from cloudgraft.conformance.driver.suite import explained
from cloudgraft.conformance.report import Report, Status
from cloudgraft.drivers.libcloud.driver import LibcloudDriver
from cloudgraft.drivers.libcloud.options import LibcloudOptions
from clouds.judges.libcloud_ec2 import MACHINE, driver_for, troubled
from clouds.servers.libcloud_cases import CLOUDS
from clouds.servers.libcloud_ec2 import LibcloudAws
from clouds.servers.openstack_fake import PASSWORD, FakeOpenstack
from clouds.servers.openstack_fake_state import IMAGE, NETWORK
from tests.drivers.libcloud.libcloud_driving import driver, opened


def failures(report: Report) -> Sequence[str]:
    bad = [explained(result) for result in report.results if result.status in {Status.FAILED, Status.ERROR}]
    return [*bad, *(f"left behind: {name}" for name in report.left_behind)]


def skipped(report: Report) -> set[str]:
    return {result.check for result in report.results if result.status is Status.SKIPPED}


NOT_IDEMPOTENT = {
    "a_second_create_adds_nothing",
    "a_second_create_is_answered_as_declared",
    "two_creates_of_one_name_at_once",
}
NEVER = {"a_crash_in_mid_create_adds_one_at_most", "prices_are_sane"}


@pytest.mark.thorough
@pytest.mark.timeout(240)  # its checks are many, and the machine may be busy
async def test_openstack_keeps_the_contract(tmp_path: Path) -> None:
    with FakeOpenstack() as cloud:
        cloud.project.page = 5
        (tmp_path / "password").write_text(PASSWORD)
        (tmp_path / "wrong").write_text("not-the-password")

        def make(secret: str = "password", endpoint: str = cloud.auth_url) -> LibcloudDriver:
            return LibcloudDriver(
                LibcloudOptions(
                    provider="OPENSTACK",
                    key="judge",
                    secret_file=tmp_path / secret,
                    project="lab",
                    region="here",
                    endpoint=endpoint,
                    list_delay=timedelta(0),
                )
            )

        def in_trouble(trouble: Trouble) -> LibcloudDriver | None:
            match trouble:
                case Trouble.AWAY:
                    return make(endpoint="http://127.0.0.1:9/v3")
                case Trouble.AUTHENTICATION:
                    return make("wrong")
            return None

        machine = {"shape": "m1.tiny", "image": IMAGE, "networks": [NETWORK]}
        settings = DriverSettings(
            machine=machine,
            at_once=4,
            interruptions=2,
            page_size=5,
            secrets=(PASSWORD,),
            troubled=in_trouble,
        )
        report = await judge_driver(make, settings)
    assert failures(report) == []
    assert skipped(report) == NOT_IDEMPOTENT | NEVER | {"a_lost_answer_is_an_unknown_outcome"}


@pytest.mark.timeout(240)
@pytest.mark.thorough
async def test_ec2_keeps_the_contract(tmp_path: Path) -> None:
    with LibcloudAws(tmp_path) as cloud:
        section = cloud.section()
        settings = DriverSettings(machine=MACHINE, at_once=4, interruptions=3, troubled=troubled(cloud))
        report = await judge_driver(lambda: driver_for(section), settings)
    assert failures(report) == []
    assert skipped(report) == {*NEVER, "a_list_has_every_page", "of_two_with_one_name_one_is_deleted"}


@pytest.mark.timeout(240)
@pytest.mark.thorough
@pytest.mark.parametrize("provider", CLOUDS)
async def test_the_other_clouds_keep_it_too(provider: str, tmp_path: Path) -> None:
    with opened(provider) as fake:
        settings = DriverSettings(
            machine=CLOUDS[provider].machine,
            wrong_machine={"shape": "s"},
            at_once=3,
            interruptions=2,
            page_size=3,
        )
        report = await judge_driver(lambda: driver(provider, fake, tmp_path, list_delay=timedelta(0)), settings)
    assert failures(report) == []
