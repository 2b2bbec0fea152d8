"""Changes by other clients, and failed launches."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgraft.sdk.errors import (
    ErrorClass,
    InvalidArgumentError,
    NotFoundError,
    PreconditionError,
)
from cloudgraft.sdk.types import InstanceState
from clouds.servers.asg_groups import desired, members
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.aws_proxy import Fault
from tests.providers.ec2_asg.asg_scene import NewAsg, NewProvider, nodes

pytestmark = pytest.mark.xdist_group("ec2")
THOROUGH = pytest.mark.thorough
NO_CAPACITY = (
    "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do not have sufficient t3.micro "
    "capacity in the Availability Zone you requested (us-east-1a). Launching EC2 instance failed."
)


# -- by somebody else's hand -------------------------------------------------------------------------------------------


async def test_a_group_that_is_deleted_by_hand_goes_and_one_that_lost_its_tag_too(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    deleted, untagged, left = new_asg(desired=1), new_asg(), new_asg()
    provider = await new_provider()
    cloud.scaling.delete_auto_scaling_group(AutoScalingGroupName=deleted, ForceDelete=True)
    tag = {"ResourceId": untagged, "ResourceType": "auto-scaling-group", "Key": "k8s.io/cluster-autoscaler/prod"}
    cloud.scaling.delete_tags(Tags=[tag])
    for name in (deleted, untagged):
        with pytest.raises(NotFoundError, match="no longer select it"):
            await provider.increase_size(name, 1)
    await provider.refresh()
    assert [group.id for group in await provider.node_groups()] == [left]
    cloud.proxy.scaling.extra[left] = "<Status>Delete in progress</Status>"
    await provider.refresh()
    assert await provider.node_groups() == []


async def test_a_group_that_is_resized_by_hand_is_shown_and_grown_as_it_is_now(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud.scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=3)
    await provider.increase_size(name, 1)
    assert await provider.target_size(name) == desired(cloud, name) == 4
    cloud.scaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=4)
    with pytest.raises(PreconditionError, match="maximum of 4"):
        await provider.increase_size(name, 1)
    cloud.scaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    await provider.refresh()
    assert await provider.target_size(name) == 2
    (group,) = await provider.node_groups()
    assert group.max_size == 4


async def test_instance_ended_by_hand_is_replaced_and_its_node_can_be_deleted(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=2)
    provider = await new_provider(name)
    lost = members(cloud, name)[0]
    cloud.terminate(lost.rpartition("/")[2])
    await provider.delete_nodes(name, nodes(lost))
    await provider.refresh()
    assert await provider.target_size(name) == 2
    assert sorted(one.id for one in await provider.instances(name)) == sorted(members(cloud, name))
    assert lost not in members(cloud, name)


async def test_node_of_an_ended_instance_can_be_deleted_after_a_restart(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name, other = new_asg(desired=1), new_asg(desired=1)
    provider = await new_provider(name)
    ended = members(cloud, name)
    await provider.delete_nodes(name, nodes(*ended))
    restarted = await new_provider(name)
    await restarted.delete_nodes(name, nodes(*ended))
    assert await restarted.target_size(name) == 0
    for foreign in (*members(cloud, other), "aws:///us-east-1a/i-0123456789abcdef0"):
        with pytest.raises(InvalidArgumentError):
            await restarted.delete_nodes(name, nodes(foreign))


async def test_a_suspended_launch_is_told(cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider) -> None:
    name = new_asg()
    provider = await new_provider(name)
    cloud.proxy.scaling.hold(name)
    await provider.increase_size(name, 1)
    cloud.scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    await provider.refresh()
    (waiting,) = await provider.instances(name)
    assert waiting.error is not None
    assert "suspended" in waiting.error.message
    with pytest.raises(PreconditionError, match="suspended"):
        await provider.increase_size(name, 1)
    await provider.delete_nodes(name, nodes(waiting.id))
    assert await provider.target_size(name) == 0


# -- launches that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code", "error_class"),
    [
        (NO_CAPACITY, "out_of_stock", ErrorClass.OUT_OF_RESOURCES),
        pytest.param("Could not launch. UnfulfillableCapacity - No", "out_of_stock", 1, marks=THOROUGH),
        ("You have requested more vCPU capacity than your current vCPU limit of 32 allows", "quota_exceeded", 1),
        pytest.param("No. MaxSpotInstanceCountExceeded - Max", "quota_exceeded", 1, marks=THOROUGH),
        pytest.param("The specified launch template does not exist.", "invalid_argument", 99, marks=THOROUGH),
        ("The wind was from the east.", "launch_failed", ErrorClass.OTHER),
    ],
)
async def test_failed_launch_has_the_autoscalers_error_class_and_can_be_deleted(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, message: str, code: str, error_class: int
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud.proxy.scaling.hold(name, message)
    await provider.increase_size(name, 2)
    await provider.refresh()
    there, *failed = await provider.instances(name)
    assert there.error is None
    assert [one.state for one in failed] == [InstanceState.CREATING] * 2
    assert {(one.error.code, one.error.error_class) for one in failed if one.error} == {(code, error_class)}
    for _ in range(2):
        await provider.delete_nodes(name, nodes(*(one.id for one in failed)))
        await provider.refresh()
        assert [one.id for one in await provider.instances(name)] == [there.id]
        assert await provider.target_size(name) == 1


async def test_older_failure_does_not_apply_to_later_requests(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    provider = await new_provider(name)
    cloud.proxy.scaling.note_failure(name, NO_CAPACITY, age=timedelta(minutes=1))
    cloud.proxy.scaling.hold(name)
    await provider.increase_size(name, 1)
    await provider.refresh()
    assert [one.error for one in await provider.instances(name)] == [None]
    restarted = await new_provider(name)  # it cannot know since when one is missing
    await restarted.refresh()
    (told,) = await restarted.instances(name)
    assert told.error is not None
    assert told.id == (await provider.instances(name))[0].id


async def test_without_the_right_to_see_activities_the_groups_are_still_seen(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    provider = await new_provider(name)
    cloud.proxy.scaling.hold(name, NO_CAPACITY)
    await provider.increase_size(name, 1)
    cloud.proxy.order(Fault(action="DescribeScalingActivities", code="AccessDenied", status=403))
    await provider.refresh()
    assert [one.error for one in await provider.instances(name)] == [None]
