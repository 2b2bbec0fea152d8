"""Templates, autoscaling options and prices of groups, and tags and overrides for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cloudgraft.providers.ec2_asg.options import Ec2AsgOptions, GroupOverrides
from cloudgraft.sdk.errors import InvalidArgumentError, PreconditionError, UnsupportedError
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.types import AutoscalingOptions, Container, NodeRef, Pod, Taint
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.moto_server import IMAGE
from tests.providers.ec2_asg.asg_scene import NewAsg, NewProvider

pytestmark = pytest.mark.xdist_group("ec2")
WEIGHTED = (
    "<MixedInstancesPolicy><LaunchTemplate><Overrides><member><InstanceType>t3.micro</InstanceType>"
    "<WeightedCapacity>2</WeightedCapacity></member></Overrides></LaunchTemplate></MixedInstancesPolicy>"
)
TAGS = "k8s.io/cluster-autoscaler/node-template/"


# -- templates ---------------------------------------------------------------------------------------------------------


async def test_a_template_is_made_of_type_tags_and_overrides(new_asg: NewAsg, new_provider: NewProvider) -> None:
    name = new_asg(
        tags={
            f"{TAGS}label/pool": "blue",
            f"{TAGS}label/tier": "one",
            f"{TAGS}taint/dedicated": "batch:NoSchedule",
            f"{TAGS}taint/wrong": "batch",
            f"{TAGS}resources/ephemeral-storage": "20Gi",
            f"{TAGS}resources/wrong": "much",
        }
    )
    overrides = {name: GroupOverrides(labels={"tier": "two"}, taints=(Taint(key="x"),), capacity={"pods": "17"})}
    provider = await new_provider(name, overrides=overrides, reserved={"memory": "256Mi"})
    template = await provider.template(name)
    assert template.labels == {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "t3.micro",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": "us-east-1a",
        "pool": "blue",
        "tier": "two",
    }
    assert template.taints == (Taint(key="dedicated", value="batch"), Taint(key="x"))
    expected = {"cpu": Quantity(2), "memory": Quantity("1Gi"), "pods": Quantity(17)}
    assert template.capacity == {**expected, "ephemeral-storage": Quantity("20Gi")}
    assert template.allocatable["memory"] == Quantity("768Mi")


async def test_the_type_comes_from_wherever_the_group_has_it(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    zones = ["us-east-1a", "us-east-1b"]
    cloud.scaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId=IMAGE, InstanceType="t3.medium", SecurityGroups=[]
    )
    base = {"LaunchTemplateSpecification": {"LaunchTemplateName": "asg-small", "Version": "$Latest"}}
    overrides = [{"InstanceType": "t3.large"}, {"InstanceType": "m5.large"}]
    mixed = new_asg(LaunchTemplate=None, MixedInstancesPolicy={"LaunchTemplate": {**base, "Overrides": overrides}})
    plain = new_asg(LaunchTemplate=None, MixedInstancesPolicy={"LaunchTemplate": base}, AvailabilityZones=zones)
    old = new_asg(LaunchTemplate=None, LaunchConfigurationName="old")
    chosen = new_asg()
    provider = await new_provider(
        mixed, plain, old, chosen, overrides={chosen: GroupOverrides(instance_type="m5.large")}
    )
    types = [
        (await provider.template(one)).labels["node.kubernetes.io/instance-type"] for one in (mixed, plain, old, chosen)
    ]
    assert types == ["t3.large", "t3.micro", "t3.medium", "m5.large"]
    assert "topology.kubernetes.io/zone" not in (await provider.template(plain)).labels


async def test_each_missing_launch_configuration_is_named(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    groups = {}
    for name in ("kept", "missing-a", "missing-b"):
        cloud.scaling.create_launch_configuration(
            LaunchConfigurationName=name, ImageId=IMAGE, InstanceType="t3.medium", SecurityGroups=[]
        )
        groups[name] = new_asg(LaunchTemplate=None, LaunchConfigurationName=name)
    for name in ("missing-a", "missing-b"):
        cloud.scaling.delete_launch_configuration(LaunchConfigurationName=name)
    provider = await new_provider(*groups.values())
    assert (await provider.template(groups["kept"])).capacity["memory"] == Quantity("4Gi")
    for name in ("missing-a", "missing-b"):
        with pytest.raises(PreconditionError, match=f"launch configuration {name} is not there"):
            await provider.template(groups[name])


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("<DesiredCapacityType>vcpu</DesiredCapacityType>", "counted in vcpu"),
        (WEIGHTED, "have weights"),
    ],
)
async def test_a_group_that_is_not_counted_in_instances_is_refused_and_no_other(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, extra: str, words: str
) -> None:
    name, other = new_asg(), new_asg(desired=1)
    cloud.proxy.scaling.extra[name] = extra
    provider = await new_provider(name, other)
    for call in (provider.target_size(name), provider.increase_size(name, 1), provider.template(name)):
        with pytest.raises(PreconditionError, match=words):
            await call
    assert await provider.target_size(other) == 1


# -- options and prices ------------------------------------------------------------------------------------------------


async def test_options_come_from_tags(new_asg: NewAsg, new_provider: NewProvider) -> None:
    prefix = f"{TAGS}autoscaling-options/"
    name = new_asg(
        tags={
            f"{prefix}scaledownunneededtime": "3m",
            f"{prefix}scaledownutilizationthreshold": "0.7",
            f"{prefix}ignoredaemonsetsutilization": "true",
            f"{prefix}scaledownunreadytime": "soon",
        }
    )
    plain = new_asg()
    provider = await new_provider(name, plain)
    assert await provider.options(plain, AutoscalingOptions()) is None
    assert await provider.options(name, AutoscalingOptions()) == AutoscalingOptions(
        scale_down_unneeded_time=timedelta(minutes=3),
        scale_down_utilization_threshold=0.7,
        ignore_daemon_sets_utilization=True,
    )


async def test_prices_are_those_of_the_options(new_asg: NewAsg, new_provider: NewProvider) -> None:
    name = new_asg()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    end = start + timedelta(hours=2)
    node = NodeRef(name=f"template-node-for-{name}-1", labels={"node.kubernetes.io/instance-type": "t3.micro"})
    pod = Pod(containers=(Container(requests={"cpu": Quantity("500m"), "memory": Quantity("512Mi")}),))
    provider = await new_provider(name, prices={"t3.micro": Decimal("0.01")})
    assert await provider.node_price(node, start, end) == pytest.approx(0.02)
    assert await provider.pod_price(pod, start, end) == pytest.approx(0.01)  # half of its memory
    silent = await new_provider(name)
    for price in (silent.node_price(node, start, end), silent.pod_price(pod, start, end)):
        with pytest.raises(UnsupportedError):
            await price


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "which groups"),
        ({"groups": ("",)}, "empty names"),
        ({"groups": ("a",), "overrides": {"b": GroupOverrides()}}, "'b' is not one of"),
        ({"groups": ("a",), "interval": timedelta(seconds=-1)}, "interval"),
        ({"groups": ("a",), "change_timeout": timedelta(0)}, "changeTimeout"),
        ({"groups": ("a",), "pods": 0}, "pods"),
        ({"groups": ("a",), "prices": {"t3.micro": Decimal(0)}}, "a price"),
        ({"groups": ("a",), "reserved": {"cpu": "some"}}, "reserved.cpu"),
        ({"groups": ("a",), "region": ""}, "region"),
    ],
)
def test_options_that_can_never_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Ec2AsgOptions(**{"region": "us-east-1", **options})


@pytest.mark.parametrize(
    "overrides", [{"min_size": -1}, {"min_size": 2, "max_size": 1}, {"taints": (Taint(key="x", effect="Never"),)},
                  {"capacity": {"cpu": "-1"}}], ids=str
)  # fmt: skip
def test_overrides_that_can_never_work_are_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        GroupOverrides(**overrides)
