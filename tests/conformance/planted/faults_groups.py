"""Mistakes in NodeGroups, and in which groups there are."""

from __future__ import annotations

from dataclasses import replace

import grpc

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import Refusal, SoundServer, group_message
from tests.conformance.planted.world import Group, World


@fault("R12", check="groups_are_listed")
class GroupsFailNowAndThen(SoundServer):
    """A third NodeGroups in a row fails: the autoscaler takes that for "no groups at all"."""

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        if self.heard.count("NodeGroups") == 2:
            raise Refusal("too many calls", grpc.StatusCode.RESOURCE_EXHAUSTED)
        return await super().groups(request)


@fault("R12", "T10", "R10", check="groups_are_listed")
class GroupsAreListedInPart(SoundServer):
    """A third NodeGroups in a row leaves a group out."""

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        answer = await super().groups(request)
        return pb.NodeGroupsResponse(nodeGroups=answer.nodeGroups[: 2 if self.heard.count("NodeGroups") == 2 else None])


@fault("R10", check="group_ids_are_usable")
class GroupWithoutAnId(SoundServer):
    """Lists a group whose id is empty."""

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        answer = await super().groups(request)
        answer.nodeGroups.add(minSize=0, maxSize=1)
        return answer


@fault("R10", check="group_ids_are_usable")
class GroupListedTwice(SoundServer):
    """Lists one id twice."""

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        answer = await super().groups(request)
        answer.nodeGroups.append(answer.nodeGroups[-1])
        return answer


@fault("R11", check="group_sizes_make_sense")
class MinAboveMax(SoundServer):
    """Lists a group whose min is larger than its max."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.groups = (*world.groups[:2], replace(world.groups[2], min_size=5))


@fault("R11", check="group_sizes_make_sense")
class MinBelowZero(SoundServer):
    """Lists a group with a negative min."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.groups = (*world.groups[:2], replace(world.groups[2], min_size=-1))


@fault("T10", "R10", check="groups_stay_the_same")
class GroupsInAnyOrder(SoundServer):
    """Lists the groups in another order each time."""

    asked = 0

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        self.asked += 1
        groups = self.world.groups if self.asked % 2 else self.world.groups[::-1]
        return pb.NodeGroupsResponse(nodeGroups=[group_message(group) for group in groups])


@fault("R10", "T9", check="a_restart_loses_nothing", with_help=True)
class GroupIdsMadeAtStart(SoundServer):
    """Numbers its groups by the process that runs, so that a restart renames one."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.groups = (*world.groups[:2], replace(world.groups[2], id=f"coral-{world.restarts}"))


@fault("R4", "R10", check="groups_stay_the_same")
class MaxChangesWithoutRefresh(SoundServer):
    """Reckons a group's max anew in each NodeGroups, although the autoscaler looks only after a Refresh."""

    asked = 0

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        self.asked += 1
        answer = await super().groups(request)
        answer.nodeGroups[-1].maxSize += self.asked
        return answer


@fault("R3", "T9", check="calls_work_before_refresh")
class NeedsARefreshFirst(SoundServer):
    """Loads its groups in Refresh, and refuses every call about one before the first."""

    is_loaded = False

    async def refresh(self, request: pb.RefreshRequest) -> pb.RefreshResponse:
        self.is_loaded = True
        return await super().refresh(request)

    def group(self, name: str) -> Group:
        if not self.is_loaded:
            raise Refusal("not initialised", grpc.StatusCode.FAILED_PRECONDITION)
        return super().group(name)


@fault("R13", "R28", check="every_group_has_a_target")
class TargetOfOneGroupFails(SoundServer):
    """Lists a group whose TargetSize always fails, which stops the autoscaler for all groups."""

    async def target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        if request.id == self.world.groups[2].id:
            raise Refusal("its cloud is down", grpc.StatusCode.UNAVAILABLE)
        return await super().target_size(request)


@fault("R13", "R42", check="every_group_lists_its_instances")
class EmptyGroupHasNoList(SoundServer):
    """NodeGroupNodes of a group without machines fails with "not found"."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = await super().nodes(request)
        if not answer.instances:
            raise Refusal(f"{request.id} has no machines", grpc.StatusCode.NOT_FOUND)
        return answer


@fault("T8", check="unknown_groups_are_refused")
class UnknownGroupHasTargetZero(SoundServer):
    """TargetSize of a group that does not exist answers 0 instead of an error."""

    async def target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        if request.id not in {group.id for group in self.world.groups}:
            return pb.NodeGroupTargetSizeResponse(targetSize=0)
        return await super().target_size(request)


@fault("T8", check="unknown_groups_are_refused")
class UnknownGroupHasNoNodes(SoundServer):
    """NodeGroupNodes of a group that does not exist answers an empty list instead of an error."""

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        if request.id not in {group.id for group in self.world.groups}:
            return pb.NodeGroupNodesResponse()
        return await super().nodes(request)
