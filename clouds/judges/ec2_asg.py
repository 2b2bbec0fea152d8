"""Auto Scaling groups: moto, behind a proxy of the tests that adds what moto lacks."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cloudgraft.client import Address, CloudConfig, SyncCloudProvider, SyncNodeGroup
from cloudgraft.conformance import Report
from cloudgraft.plugins.registry import Kind
from cloudgraft.sdk.errors import ErrorClass, OutOfStockError
from cloudgraft.sdk.types import Instance, InstanceState, NodeRef
from clouds.judge import Judge, Progress, ProviderCase, Tell
from clouds.judges.ec2 import JUDGE as EC2
from clouds.servers.asg_chaos import WHY
from clouds.servers.asg_groups import AsgGroups, desired, make_templates, members
from clouds.servers.asg_served import kit_report, provider_entry
from clouds.servers.aws_cloud import AwsCloud
from clouds.servers.aws_proxy import Fault
from clouds.servers.aws_proxy import Kind as FaultKind
from e2e.cloudgraft_process import CloudgraftServer
from e2e.waiting import until

__all__ = ["JUDGE"]

_SECONDS: Final = 60.0


class _AsgJudge(Judge):
    """Needs what the driver of EC2 is judged by."""

    driver = "ec2-asg"
    kind = Kind.PROVIDER

    def missing(self) -> str:
        """Whether moto is installed."""
        return EC2.missing()

    @contextmanager
    def open(self, directory: Path, tell: Tell) -> Iterator[ProviderCase]:
        """Starts both."""
        tell(f"moto {version('moto')} is starting ...")
        with AwsCloud(directory) as cloud:
            make_templates(cloud)
            checks, moto = _Checks(cloud, directory), f"moto {version('moto')}"
            yield ProviderCase(
                judged_by=f"{moto} behind a proxy of ours (limits, failed launches, signatures, faults)",
                conformance=checks.conforms,
                scale=checks.scales,
                alive=cloud.alive,
                more=checks.more(),
            )


class _Checks:
    """What is to be seen of Auto Scaling groups through a server; each check has groups of its own."""

    def __init__(self, cloud: AwsCloud, directory: Path) -> None:
        self._cloud = cloud
        self._directory = directory

    def more(self) -> Mapping[str, Callable[[], None]]:
        """By what each of them shows."""
        return {
            "an increase whose answer is lost is made once": self.increases_once_when_an_answer_is_lost,
            "an instance that is terminated by hand is noticed": self.notices_what_was_terminated,
            "a stock-out is told in the autoscaler's words": self.tells_a_stock_out,
        }

    def conforms(self, progress: Progress) -> Report:
        """The kit with its hooks: a stock-out, a cloud that hangs, and a server that is killed."""
        home = self._directory / "kit"
        home.mkdir()
        groups = AsgGroups(self._cloud)
        try:
            small, floor = groups.make(MaxSize=12), groups.make(MaxSize=4)
            report = asyncio.run(kit_report(self._cloud, small, floor, home, progress=progress))
            left = [*members(self._cloud, small), *members(self._cloud, floor)]
            return dataclasses.replace(report, left_behind=(*report.left_behind, *left))
        finally:
            self._cloud.proxy.clear()
            groups.remove()

    def scales(self) -> None:
        """Up by the autoscaler's call, down by its other one; moto itself is asked what there is."""
        with self._served("scale") as (group, _):
            self._grow(group, 2)
            self._shrink(group)
            assert not self._cloud.alive(), self._cloud.alive()

    def increases_once_when_an_answer_is_lost(self) -> None:
        """The request is carried out, and the connection is reset."""
        with self._served("lost") as (group, _):
            self._cloud.proxy.order(Fault(kind=FaultKind.LOST, action="SetDesiredCapacity"))
            self._grow(group, 2)
            self._shrink(group)

    def notices_what_was_terminated(self) -> None:
        """By hand, past the provider: Auto Scaling puts another in its place, and the lost node can be deleted."""
        with self._served("terminated") as (group, server):
            self._grow(group, 2)
            lost = members(self._cloud, group.id)[0]
            self._cloud.terminate(lost.rpartition("/")[2])
            until(
                lambda: lost not in _ids(group.nodes()) and self._is_as_in_aws(group, 2),
                "another is there instead",
                seconds=_SECONDS,
                check=server.check,
            )
            group.delete_nodes(_nodes([lost]))
            assert (group.target_size(), desired(self._cloud, group.id)) == (2, 2)
            self._shrink(group)

    def tells_a_stock_out(self) -> None:
        """With the class that makes the autoscaler turn to another group; what it then deletes is not made later."""
        with self._served("full") as (group, server):
            self._cloud.proxy.scaling.hold(group.id, WHY)
            group.increase_size(2)
            until(lambda: _failed(group, 2), "both have failed", seconds=_SECONDS, check=server.check)
            told = {(one.state, one.error.code, one.error.error_class) for one in group.nodes() if one.error}
            expected = (InstanceState.CREATING, OutOfStockError.slug, ErrorClass.OUT_OF_RESOURCES)
            assert told == {expected}, told
            group.delete_nodes(_nodes(_ids(group.nodes())))
            self._cloud.proxy.scaling.release(group.id)
            until(lambda: not group.nodes(), "they are gone", seconds=_SECONDS, check=server.check)
            assert (group.target_size(), desired(self._cloud, group.id)) == (0, 0)
            assert not members(self._cloud, group.id)

    # -- steps ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def _served(self, name: str) -> Iterator[tuple[SyncNodeGroup, CloudgraftServer]]:
        """A new group, as the autoscaler has it from a server."""
        home = self._directory / name
        home.mkdir()
        groups = AsgGroups(self._cloud)
        made = groups.make()
        server = CloudgraftServer(home, {"cluster": "judged", "providers": [provider_entry(self._cloud, made)]})
        server.start()
        try:
            config = CloudConfig(address=Address.parse(server.address))
            with SyncCloudProvider.connect(config) as autoscaler:
                (group,) = autoscaler.node_groups()
                assert group.id == made, group
                yield group, server
        finally:
            server.stop()
            self._cloud.proxy.clear()
            groups.remove()

    def _grow(self, group: SyncNodeGroup, count: int) -> None:
        group.increase_size(count)
        assert group.target_size() == count, group.target_size()
        until(lambda: self._is_as_in_aws(group, count), "the instances run", seconds=_SECONDS)
        assert desired(self._cloud, group.id) == count, desired(self._cloud, group.id)

    def _shrink(self, group: SyncNodeGroup) -> None:
        group.delete_nodes(_nodes(_ids(group.nodes())))
        assert (group.target_size(), desired(self._cloud, group.id)) == (0, 0)
        until(lambda: not group.nodes(), "the autoscaler sees them gone", seconds=_SECONDS)
        assert not members(self._cloud, group.id), members(self._cloud, group.id)

    def _is_as_in_aws(self, group: SyncNodeGroup, count: int) -> bool:
        """Whether so many run, and they are those that moto has."""
        found = group.nodes()
        is_running = [one.state for one in found] == [InstanceState.RUNNING] * count
        return is_running and sorted(_ids(found)) == sorted(members(self._cloud, group.id))


def _failed(group: SyncNodeGroup, count: int) -> bool:
    found = group.nodes()
    return len(found) == count and all(one.error is not None for one in found)


def _ids(instances: Sequence[Instance]) -> list[str]:
    return [one.id for one in instances]


def _nodes(ids: Sequence[str]) -> list[NodeRef]:
    return [NodeRef(name=one, provider_id=one) for one in ids]


JUDGE: Final = _AsgJudge()
