"""Auto Scaling groups in moto: made, and asked about, past the provider."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.moto_server import IMAGE

__all__ = ["CLUSTER", "AsgGroups", "described", "desired", "make_templates", "members"]

CLUSTER: Final = "k8s.io/cluster-autoscaler/prod"  # the tag that all of them have
_NUMBERS: Final[Iterator[int]] = itertools.count(1)


def make_templates(cloud: AwsCloud) -> None:
    """The launch templates that groups are made with; once in a cloud."""
    for name, kind in (("small", "t3.micro"), ("large", "m5.large")):
        data = {"ImageId": IMAGE, "InstanceType": kind}
        cloud.client.create_launch_template(LaunchTemplateName=f"asg-{name}", LaunchTemplateData=data)


class AsgGroups:
    """Makes groups, each with a name of its own, and removes them."""

    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud
        self._names: list[str] = []

    def make(
        self, *, desired: int = 0, tags: Mapping[str, str] | None = None, template: str = "asg-small", **changes: Any
    ) -> str:
        """A new group; ``changes`` are of the request, and what is None is left out of it."""
        name = f"workers-{next(_NUMBERS)}"
        self._names.append(name)
        request: dict[str, Any] = {
            "MinSize": 0,
            "MaxSize": 5,
            "AvailabilityZones": ["us-east-1a"],
            "LaunchTemplate": {"LaunchTemplateName": template, "Version": "1"},
            **changes,
        }
        self._cloud.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            DesiredCapacity=desired,
            Tags=[
                {"Key": key, "Value": value, "PropagateAtLaunch": False}
                for key, value in {CLUSTER: "owned", **(tags or {})}.items()
            ],
            **{key: value for key, value in request.items() if value is not None},
        )
        return name

    def remove(self) -> None:
        """All that were made and are still there, with their instances."""
        names, self._names = self._names, []
        if not names:  # no names would stand for all groups
            return
        found = self._cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
        for one in found:
            self._cloud.scaling.delete_auto_scaling_group(
                AutoScalingGroupName=one["AutoScalingGroupName"], ForceDelete=True
            )


def described(cloud: AwsCloud, name: str) -> dict[str, Any]:
    """A group, as moto tells it."""
    (found,) = cloud.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return dict(found)


def desired(cloud: AwsCloud, name: str) -> int:
    """Its desired capacity."""
    return int(described(cloud, name)["DesiredCapacity"])


def members(cloud: AwsCloud, name: str) -> list[str]:
    """The provider ids of its instances."""
    return [f"aws:///{one['AvailabilityZone']}/{one['InstanceId']}" for one in described(cloud, name)["Instances"]]
