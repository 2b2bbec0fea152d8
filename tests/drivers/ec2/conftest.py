"""Fixtures of the tests of EC2."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cloudgraft.drivers.ec2.driver import Ec2Driver
from cloudgraft.sdk.driver import MachineSpec
from clouds.judges.ec2 import MACHINE, driver_for
from clouds.servers.aws_cloud import AwsCloud

NUMBERS = itertools.count(1)
NewSpec = Callable[..., MachineSpec]


@pytest.fixture
def cloud(aws: AwsCloud) -> Iterator[AwsCloud]:
    yield aws
    aws.proxy.clear()


@pytest.fixture(scope="session")
def lasting_driver(aws: AwsCloud) -> Iterator[Ec2Driver]:
    driver = driver_for({**aws.account("tests"), "shapes": ["t3.micro"]}, list_delay=timedelta(0))
    driver.start()
    yield driver
    driver.close()


@pytest.fixture
def driver(cloud: AwsCloud, lasting_driver: Ec2Driver) -> Ec2Driver:
    return lasting_driver


@pytest.fixture
def new_spec(cloud: AwsCloud) -> Iterator[NewSpec]:
    """Makes orders, each with a name of its own; whatever was made of them is removed in the end."""
    names: list[str] = []

    def make(user_data: str = "", **settings: object) -> MachineSpec:
        name = f"prod-cluster-id-{next(NUMBERS)}"
        names.append(name)
        tags = {"cloudgraft-cluster-id": "cluster-id", "cloudgraft-cluster": "prod", "cloudgraft-name": name}
        return MachineSpec(name=name, group="small", settings={**MACHINE, **settings}, tags=tags, user_data=user_data)

    yield make
    cloud.terminate(*filter(None, map(cloud.proxy.made, names)))
