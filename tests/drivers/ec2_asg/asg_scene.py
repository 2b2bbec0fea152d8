"""What the tests of Auto Scaling groups ask moto itself, past the provider."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from cloudgraft.drivers.ec2_asg.provider import Ec2AsgProvider
from cloudgraft.sdk.types import NodeRef
from clouds.servers.aws_cloud import AwsCloud

NewAsg = Callable[..., str]
NewProvider = Callable[..., Awaitable[Ec2AsgProvider]]


def described(cloud: AwsCloud, name: str) -> dict[str, Any]:
    (found,) = cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return dict(found)


def desired(cloud: AwsCloud, name: str) -> int:
    return int(described(cloud, name)["DesiredCapacity"])


def members(cloud: AwsCloud, name: str) -> list[str]:
    return [f"aws:///{one['AvailabilityZone']}/{one['InstanceId']}" for one in described(cloud, name)["Instances"]]


def nodes(*ids: str) -> list[NodeRef]:
    return [NodeRef(name=one, provider_id=one) for one in ids]
