"""Auto Scaling groups in moto, and providers that look at them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudgraft.drivers.ec2.account import AccountOptions
from cloudgraft.drivers.ec2.session import Clients
from cloudgraft.drivers.ec2_asg.options import Ec2AsgOptions
from cloudgraft.drivers.ec2_asg.provider import Ec2AsgProvider
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.moto_server import IMAGE
from tests.drivers.ec2_asg.asg_scene import NewAsg, NewProvider

NUMBERS = itertools.count(1)
CLUSTER = "k8s.io/cluster-autoscaler/prod"


class LastingClients(Clients):
    """Not closed with the provider: to make them anew for each test takes longer than most tests."""

    def close(self) -> None:
        """Stays open."""


@pytest.fixture(scope="session")
def templates(aws: AwsCloud) -> None:
    for name, kind in (("small", "t3.micro"), ("large", "m5.large")):
        data = {"ImageId": IMAGE, "InstanceType": kind}
        aws.client.create_launch_template(LaunchTemplateName=f"asg-{name}", LaunchTemplateData=data)


@pytest.fixture(scope="session")
def account(aws: AwsCloud) -> dict[str, Any]:
    return aws.account("asg")


@pytest.fixture(scope="session")
def lasting() -> dict[object, LastingClients]:
    return {}


@pytest.fixture
def cloud(aws: AwsCloud, templates: None) -> Iterator[AwsCloud]:
    yield aws
    aws.proxy.clear()


@pytest.fixture
def new_asg(cloud: AwsCloud) -> Iterator[NewAsg]:
    """Makes groups, each with a name of its own; they are removed in the end."""
    names: list[str] = []

    def make(
        *, desired: int = 0, tags: dict[str, str] | None = None, template: str = "asg-small", **changes: Any
    ) -> str:
        name = f"workers-{next(NUMBERS)}"
        names.append(name)
        request: dict[str, Any] = {
            "MinSize": 0,
            "MaxSize": 5,
            "AvailabilityZones": ["us-east-1a"],
            "LaunchTemplate": {"LaunchTemplateName": template, "Version": "1"},
            **changes,
        }
        cloud.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            DesiredCapacity=desired,
            Tags=[
                {"Key": key, "Value": value, "PropagateAtLaunch": False}
                for key, value in {CLUSTER: "owned", **(tags or {})}.items()
            ],
            **{key: value for key, value in request.items() if value is not None},
        )
        return name

    yield make
    found = cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
    for name in [one["AutoScalingGroupName"] for one in found if names]:
        cloud.scaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)


@pytest.fixture
async def new_provider(
    account: dict[str, Any], lasting: dict[object, LastingClients], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[NewProvider]:
    """Makes providers for groups; they are started, have looked once, and are closed in the end."""

    def clients(options: AccountOptions) -> LastingClients:
        key = (options.access_key_id_file, options.timeout)
        return lasting.setdefault(key, LastingClients(options))

    monkeypatch.setattr("cloudgraft.drivers.ec2_asg.cloud.Clients", clients)
    monkeypatch.setattr("cloudgraft.drivers.ec2_asg.changes._PATIENCE", 60.0)  # moto may be slow; no autoscaler waits
    own = account
    async with AsyncExitStack() as stack:

        async def make(*groups: str, account: dict[str, Any] | None = None, **changes: Any) -> Ec2AsgProvider:
            options = account or own
            given = Ec2AsgOptions(
                region=options["region"],
                endpoint_url=options["endpointUrl"],
                access_key_id_file=Path(options["accessKeyIdFile"]),
                secret_access_key_file=Path(options["secretAccessKeyFile"]),
                groups=groups,
                tags={} if groups else {CLUSTER: "owned"},
                interval=timedelta(0),
                change_timeout=timedelta(seconds=10),
            )
            provider = Ec2AsgProvider(dataclasses.replace(given, **changes))
            await provider.start()
            stack.push_async_callback(provider.close)
            if account is None:
                await provider.refresh()
            return provider

        yield make
