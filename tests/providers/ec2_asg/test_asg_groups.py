"""Auto Scaling groups as node groups: found, shown, grown and shrunk."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgraft.providers.ec2_asg.options import GroupOverrides
from cloudgraft.providers.ec2_asg.provider import Ec2AsgProvider
from cloudgraft.sdk.errors import InvalidArgumentError, NotFoundError, PreconditionError
from cloudgraft.sdk.types import InstanceState, NodeRef
from clouds.servers.asg_groups import described, members
from clouds.servers.aws_cloud import AwsCloud
from tests.providers.ec2_asg.asg_scene import NewAsg, NewProvider, nodes

pytestmark = pytest.mark.xdist_group("ec2")


async def states(provider: Ec2AsgProvider, name: str) -> list[InstanceState]:
    return [one.state for one in await provider.instances(name)]


# -- discovery ---------------------------------------------------------------------------------------------------------


async def test_groups_are_found_by_their_tags_and_by_their_names_in_one_pass(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    tagged, valued, foreign, named = new_asg(), new_asg(tags={"team": "red"}), new_asg(), new_asg(tags={"team": "x"})
    cloud.scaling.delete_tags(
        Tags=[{"ResourceId": one, "ResourceType": "auto-scaling-group", "Key": "k8s.io/cluster-autoscaler/prod"}
              for one in (foreign, named)]
    )  # fmt: skip
    before = len(cloud.proxy.calls)
    provider = await new_provider(named, tags={"k8s.io/cluster-autoscaler/prod": ""})  # any value
    asked = [call.action for call in cloud.proxy.calls[before:]]
    assert [group.id for group in await provider.node_groups()] == sorted([tagged, valued, named])
    assert asked.count("DescribeAutoScalingGroups") == 2  # by name, by tags
    red = await new_provider(tags={"team": "red"})
    assert [group.id for group in await red.node_groups()] == [valued]
    with pytest.raises(NotFoundError):
        await red.increase_size(foreign, 1)


async def test_a_calm_provider_asks_once_per_interval_and_in_pages_of_a_hundred(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    for _ in range(3):
        new_asg()
    provider = await new_provider(interval=timedelta(hours=1))
    before = len(cloud.proxy.calls)
    await provider.refresh()
    assert cloud.proxy.calls[before:] == []
    provider = await new_provider()
    before = len(cloud.proxy.calls)
    await provider.refresh()
    (call,) = cloud.proxy.calls[before:]  # types are known, and nothing is on its way
    assert (call.action, call.parameters["MaxRecords"]) == ("DescribeAutoScalingGroups", "100")


async def test_sizes_are_those_of_aws_within_the_overrides(new_asg: NewAsg, new_provider: NewProvider) -> None:
    name, other, broken = new_asg(MinSize=1, desired=1), new_asg(), new_asg(MaxSize=2)
    overrides = {
        name: GroupOverrides(min_size=0, max_size=9),
        other: GroupOverrides(min_size=2, max_size=3),
        broken: GroupOverrides(min_size=3),
    }
    provider = await new_provider(name, other, broken, overrides=overrides)
    sizes = {group.id: (group.min_size, group.max_size) for group in await provider.node_groups()}
    assert sizes == {name: (1, 5), other: (2, 3), broken: (0, 2)}
    with pytest.raises(PreconditionError, match="do not fit"):
        await provider.target_size(broken)
    assert await provider.target_size(other) == 0


async def test_a_node_belongs_to_its_group_by_its_provider_id(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    (own,) = members(cloud, name)
    (group,) = await provider.node_groups()
    assert await provider.node_group_for_node(NodeRef(name="ip-10-0-0-1", provider_id=own)) == group
    for other in (NodeRef(name="control-plane"), NodeRef(provider_id="aws:///us-east-1a/i-0")):
        assert await provider.node_group_for_node(other) is None


# -- growing and shrinking ---------------------------------------------------------------------------------------------


async def test_an_increase_shows_at_once_and_then_as_instances(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    await provider.increase_size(name, 2)
    assert await provider.target_size(name) == 3
    assert await states(provider, name) == [InstanceState.RUNNING, InstanceState.CREATING, InstanceState.CREATING]
    assert described(cloud, name)["DesiredCapacity"] == 3
    placeholders = [one.id for one in await provider.instances(name)][1:]
    await provider.refresh()
    assert sorted(one.id for one in await provider.instances(name)) == sorted(members(cloud, name))
    group = await provider.node_group_for_node(NodeRef(name="new", provider_id=placeholders[0]))
    assert group is not None
    assert group.id == name


async def test_a_deletion_lowers_the_desired_capacity_once_and_replaces_nothing(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=3)
    provider = await new_provider(name)
    cloud.proxy.scaling.ends_slowly = True
    asked = len(cloud.proxy.called("TerminateInstanceInAutoScalingGroup"))
    doomed = members(cloud, name)[:2]
    for _ in range(2):
        await provider.delete_nodes(name, nodes(*doomed))
        assert await provider.target_size(name) == 1
        found = {one.id: one.state for one in await provider.instances(name)}
        assert {found[one] for one in doomed} == {InstanceState.DELETING}
        await provider.refresh()
    cloud.proxy.scaling.finish()
    await provider.refresh()
    await provider.delete_nodes(name, nodes(*doomed))  # gone, and their nodes are still there
    assert await provider.target_size(name) == described(cloud, name)["DesiredCapacity"] == 1
    assert [one.id for one in await provider.instances(name)] == members(cloud, name)
    assert len(cloud.proxy.called("TerminateInstanceInAutoScalingGroup")) == asked + 2


async def test_a_foreign_node_stops_the_whole_deletion(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name, other = new_asg(desired=1), new_asg(desired=1)
    provider = await new_provider(name, other)
    for foreign in ("aws:///us-east-1a/i-0", *members(cloud, other)):
        with pytest.raises(InvalidArgumentError, match="no instance of"):
            await provider.delete_nodes(name, nodes(*members(cloud, name), foreign))
    assert described(cloud, name)["DesiredCapacity"] == 1


async def test_decrease_removes_only_missing_instances_and_never_fails(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider, caplog: pytest.LogCaptureFixture
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    await provider.decrease_target_size(name, -1)
    assert await provider.target_size(name) == 1
    cloud.proxy.scaling.hold(name)
    await provider.increase_size(name, 3)
    before = [one.id for one in await provider.instances(name)]
    await provider.decrease_target_size(name, -1)
    assert [one.id for one in await provider.instances(name)] == before[:3]  # the newest goes
    await provider.decrease_target_size(name, -9)
    assert await provider.target_size(name) == 1
    await provider.refresh()
    assert [one.id for one in await provider.instances(name)] == members(cloud, name)
    await provider.decrease_target_size("nobody", -1)
    assert "was not lowered by missing instances" in caplog.text


async def test_placeholders_are_deleted_by_lowering_the_desired_capacity(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=1)
    provider = await new_provider(name)
    cloud.proxy.scaling.hold(name)
    await provider.increase_size(name, 3)
    first, second, third = [one.id for one in await provider.instances(name)][1:]
    await provider.delete_nodes(name, nodes(second))
    await provider.delete_nodes(name, nodes(second))
    await provider.refresh()
    assert [one.id for one in await provider.instances(name)] == [*members(cloud, name), first, third]
    assert await provider.target_size(name) == 3
    await provider.increase_size(name, 1)
    assert second not in {one.id for one in await provider.instances(name)}  # an id means one thing


async def test_a_placeholder_stays_a_name_of_its_instance(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg()
    provider = await new_provider(name)
    await provider.increase_size(name, 1)
    (placeholder,) = [one.id for one in await provider.instances(name)]
    await provider.refresh()
    await provider.delete_nodes(name, nodes(placeholder))
    assert (described(cloud, name)["DesiredCapacity"], members(cloud, name)) == (0, [])


async def test_missing_instances_below_the_minimum_of_aws_are_given_up(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    """R38: the autoscaler may delete what failed below the minimum; AWS lets nobody go there."""
    name = new_asg(MinSize=2, desired=2)
    (doomed, left) = members(cloud, name)
    provider = await new_provider(name)
    with pytest.raises(PreconditionError, match="min size"):
        await provider.delete_nodes(name, nodes(doomed))
    cloud.proxy.scaling.hold(name)
    await provider.increase_size(name, 1)
    await provider.delete_nodes(name, nodes(doomed))  # one runs, one is missing
    (placeholder,) = [one.id for one in await provider.instances(name) if "placeholder" in one.id]
    await provider.delete_nodes(name, nodes(placeholder))
    await provider.refresh()
    assert [one.id for one in await provider.instances(name)] == [left]
    assert await provider.target_size(name) == 1
    await provider.increase_size(name, 1)
    assert await provider.target_size(name) == 2
    assert len(await provider.instances(name)) == 2


async def test_lifecycles_have_the_autoscalers_states(
    cloud: AwsCloud, new_asg: NewAsg, new_provider: NewProvider
) -> None:
    name = new_asg(desired=5)
    ids = [one.rpartition("/")[2] for one in members(cloud, name)]
    words = ("Pending:Wait", "InService", "Terminating:Proceed", "Standby", "SomethingNew")
    cloud.proxy.scaling.lifecycles.update(zip(ids, words, strict=True))
    provider = await new_provider(name)
    creating, running, deleting = InstanceState.CREATING, InstanceState.RUNNING, InstanceState.DELETING
    # One is being replaced, and one is beside the desired capacity: AWS will make two.
    assert await states(provider, name) == [creating, running, deleting, running, running, creating, creating]
    assert await provider.target_size(name) == 6
    with pytest.raises(PreconditionError, match="standby"):
        await provider.delete_nodes(name, nodes(*members(cloud, name)))
    assert described(cloud, name)["DesiredCapacity"] == 5
