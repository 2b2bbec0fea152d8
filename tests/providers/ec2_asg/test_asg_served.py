"""The provider in a server, as the autoscaler meets it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgraft.client import Address, CloudConfig, CloudProvider
from cloudgraft.conformance import Status
from cloudgraft.providers.ec2_asg.state import Asg, Group, Launch, Member, ReadTime, group_of_placeholder
from cloudgraft.sdk.types import InstanceState, NodeRef
from clouds.servers.asg_groups import desired, members
from clouds.servers.asg_served import NOT_JUDGED, kit_report, provider_entry
from clouds.servers.aws_cloud import AwsCloud
from tests.conditions import until
from tests.providers.ec2_asg.asg_scene import NewAsg
from tests.serve.servers import Server

pytestmark = pytest.mark.xdist_group("ec2")


@pytest.mark.thorough
async def test_a_group_is_scaled_up_and_down_through_the_server(
    cloud: AwsCloud, new_asg: NewAsg, tmp_path: Path
) -> None:
    name = new_asg(desired=1)
    file = tmp_path / "cloudgraft.yaml"
    server_section = {"listen": "127.0.0.1:0", "ops": None}
    document = {"cluster": "test", "server": server_section, "providers": [provider_entry(cloud, name)]}
    file.write_text(json.dumps(document))
    with Server(file) as server:
        config = CloudConfig(address=Address.parse(server.address))
        async with CloudProvider.connect(config) as autoscaler:
            (group,) = await autoscaler.node_groups()
            await group.increase_size(2)
            assert await group.target_size() == 3

            async def run_all() -> bool:
                return [one.state for one in await group.nodes()] == [InstanceState.RUNNING] * 3

            await until(run_all)
            assert desired(cloud, name) == 3
            for one in await group.nodes():
                await group.delete_nodes([NodeRef(name="node", provider_id=one.id)])
            assert await group.target_size() == desired(cloud, name) == 0
            assert members(cloud, name) == []


@pytest.mark.thorough
@pytest.mark.timeout(300)  # the kit waits for a server that is started again
async def test_the_server_conforms_with_every_hook(cloud: AwsCloud, new_asg: NewAsg, tmp_path: Path) -> None:
    small, floor = new_asg(MaxSize=12), new_asg(MaxSize=4)
    report = await kit_report(cloud, small, floor, tmp_path)
    ended = [f"{one.status} {one.check}: {one.message}" for one in report.results if one.status is not Status.PASSED]
    assert report.is_passed, "\n".join(ended)
    assert {one.check for one in report.results if one.status is Status.SKIPPED} == NOT_JUDGED
    assert members(cloud, small) == members(cloud, floor) == []


# -- without a cloud ---------------------------------------------------------------------------------------------------


def asg(desired: int, *ids: str) -> Asg:
    return Asg(
        name="a/b c-1",
        min_size=0,
        max_size=9,
        desired=desired,
        members=[Member(instance_id=one, provider_id=f"aws:///z/{one}", state=InstanceState.RUNNING) for one in ids],
        zones=("z",),
        tags={},
        launch=Launch(),
        suspended=frozenset(),
        is_leaving=False,
    )


def look(at: float) -> ReadTime:
    return ReadTime(at=at, aws=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at))


def test_a_description_that_is_older_than_a_change_of_ours_does_not_undo_it() -> None:
    group = Group(asg(2, "i-1", "i-2"), (0, 9), look(0.0), region="r", since=look(0.0).aws)
    group.desired_was_set(4, 4, look(1.0))
    group.was_terminated("i-1", look(2.0))
    for old in (asg(2, "i-1", "i-2"), asg(4, "i-1", "i-2")):
        group.observe(old, (0, 9), look(3.0))
        assert group.target == 3
        assert group.instances()[0].state is InstanceState.DELETING
    group.observe(asg(2, "i-1", "i-2"), (0, 9), look(60.0))  # that late, it is the truth
    assert group.target == 2
    assert group.instances()[0].state is InstanceState.RUNNING


def test_placeholders_tell_their_group_and_last_over_a_restart() -> None:
    group = Group(asg(3, "i-1"), (0, 9), look(0.0), region="r", since=look(0.0).aws)
    again = Group(asg(3, "i-1"), (0, 9), look(9.0), region="r", since=look(0.0).aws)
    ids = [one.id for one in group.instances()[1:]]
    assert ids == [one.id for one in again.instances()[1:]]
    assert {group_of_placeholder(one) for one in ids} == {"a/b c-1"}
    assert group_of_placeholder("aws:///z/i-0123") == ""
    group.observe(asg(3, "i-1", "i-2"), (0, 9), look(1.0))
    assert [one.id for one in group.instances()[2:]] == ids[1:]  # the oldest has come
    assert group.waiting.aliases == {ids[0]: "i-2"}
