"""Runs the conformance suite over moto, behind a proxy that remembers client tokens and checks signatures."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from cloudgraft.conformance.driver import DriverSettings, judge_driver
from cloudgraft.conformance.driver.suite import explained
from cloudgraft.conformance.report import Status
from clouds.judges.ec2 import MACHINE, driver_for, troubled
from clouds.servers.aws_cloud import AwsCloud

pytestmark = pytest.mark.xdist_group("ec2")  # moto is started once
PAGE = 5


@pytest.mark.timeout(240)  # some 260 calls, on a machine that may be busy
@pytest.mark.thorough
def test_the_driver_conforms(cloud: AwsCloud) -> None:
    options = {**cloud.account("conformance"), "shapes": [MACHINE["shape"]]}
    secret = Path(options["secretAccessKeyFile"]).read_text("utf-8").strip()
    judged = judge_driver(
        lambda: driver_for(options, list_delay=timedelta(0), page_size=PAGE, prices={"t3.micro": Decimal("0.0104")}),
        DriverSettings(
            machine=MACHINE,
            page_size=PAGE,
            at_once=2,
            interruptions=1,
            secrets=(secret,),
            troubled=troubled(cloud),
        ),
    )
    report = asyncio.run(judged)
    failures = [explained(result) for result in report.results if result.status in {Status.FAILED, Status.ERROR}]
    assert failures == []
    unjudged = [(result.check, result.message) for result in report.results if result.status is Status.INCONCLUSIVE]
    assert report.is_passed, unjudged
    assert report.left_behind == ()
    assert {result.check for result in report.results if result.status is Status.SKIPPED} == {
        "a_crash_in_mid_create_adds_one_at_most",  # it is no process of its own
        "of_two_with_one_name_one_is_deleted",  # there are none
    }
