"""Mistakes in DeleteNodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.faults_sizes import SLOW_SECONDS
from tests.conformance.planted.sound import Refusal, SoundServer, other_calls_go_first
from tests.conformance.planted.world import Group, Machine, World


class _Miscounting(SoundServer):
    """Is right until ``surplus`` is not 0: that many too many are in the target."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.surplus = dict.fromkeys((group.id for group in world.groups), 0)

    def target(self, group: Group) -> int:
        return max(0, super().target(group) + self.surplus[group.id])

    def falling(self, request: pb.NodeGroupDeleteNodesRequest) -> list[Machine]:
        """The machines of the call that still count."""
        return [machine for machine in self.own(self.group(request.id), request.nodes) if machine.is_counted]


@fault("R58", "R38", "T3", check="deletion_goes_below_min")
class DeletionMindsTheMin(SoundServer):
    """DeleteNodes refuses to go below the min, which is the autoscaler's business."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        group = self.group(request.id)
        falling = sum(machine.is_counted for machine in self.own(group, request.nodes))
        if falling and self.target(group) - falling < group.min_size:
            raise Refusal(f"{group.id} has a minimum of {group.min_size}", grpc.StatusCode.FAILED_PRECONDITION)
        return await super().delete_nodes(request)


@fault("R55", "T3", "T6", check="deletion_may_be_repeated")
class SecondDeletionFails(SoundServer):
    """DeleteNodes answers an error for a machine that is being deleted already."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for machine in self.own(self.group(request.id), request.nodes):
            if not machine.is_counted:
                raise Refusal(f"{machine.name} is being deleted", grpc.StatusCode.FAILED_PRECONDITION)
        return await super().delete_nodes(request)


@fault("R56", "R55", "T6", check="gone_machines_may_be_deleted")
class GoneMachineIsAnError(SoundServer):
    """DeleteNodes answers an error for a machine of its own that is gone already."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for machine in self.own(self.group(request.id), request.nodes):
            if machine.is_gone:
                raise Refusal(f"{machine.name} does not exist", grpc.StatusCode.NOT_FOUND)
        return await super().delete_nodes(request)


@fault("R55", "R53", "R56", "T6", "T3", check="deletion_may_be_repeated")
class SecondDeletionLowersAgain(_Miscounting):
    """DeleteNodes lowers the target by the nodes that it is given, those that it has deleted before included."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        self.surplus[request.id] -= len(request.nodes) - len(self.falling(request))
        return await super().delete_nodes(request)


@fault("R53", "R55", check="a_node_named_twice_counts_once")
class NodeNamedTwiceCountsTwice(_Miscounting):
    """DeleteNodes lowers the target by the nodes of the call, without looking whether one is there twice."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        falling = self.falling(request)
        self.surplus[request.id] -= len(falling) - len({machine.id for machine in falling})
        return await super().delete_nodes(request)


@fault("R53", "R27", "T6", "T3", check="deleted_machines_are_not_replaced")
class DeletedMachinesAreReplaced(SoundServer):
    """DeleteNodes leaves the group's own size alone, so that each Refresh makes up for the machines that went."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.missing: list[str] = []  # groups
        self.replacements: set[str] = set()  # which are not replaced again: a kit must be able to clean up

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        machines = self.own(self.group(request.id), request.nodes)
        self.missing += [m.group for m in machines if m.is_counted and m.id not in self.replacements]
        return await super().delete_nodes(request)

    async def refresh(self, request: pb.RefreshRequest) -> pb.RefreshResponse:
        self.replacements |= {self.world.order(group).id for group in self.missing}
        self.missing.clear()
        return await super().refresh(request)


@fault("R52", "T6", check="unknown_nodes_are_not_deleted")
class ForeignNodesAreIgnored(SoundServer):
    """DeleteNodes answers OK for nodes that it does not know."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        known = [node for node in request.nodes if self.find(node) is not None]
        return await super().delete_nodes(pb.NodeGroupDeleteNodesRequest(id=request.id, nodes=known))


@fault("R52", "T6", check="mixed_deletions_do_nothing")
class HalfOfAMixedCallIsDone(SoundServer):
    """DeleteNodes with a foreign node among its own deletes its own and answers an error."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for node in request.nodes:
            for machine in self.own(self.group(request.id), [node]):
                self.world.delete(machine)
        return pb.NodeGroupDeleteNodesResponse()


@fault("R52", check="nodes_of_another_group_are_not_deleted")
class DeletesForAnyGroup(SoundServer):
    """DeleteNodes does not look whether the machine is in the group that it is told."""

    def own(self, group: Group, nodes: Sequence[pb.ExternalGrpcNode]) -> list[Machine]:
        machines = [self.find(node) for node in nodes]
        if None in machines:
            return super().own(group, nodes)
        return [machine for machine in machines if machine is not None]


@fault("R49", "R53", "T6", check="stand_ins_are_deleted")
class OnlyTheFirstNodeIsDeleted(SoundServer):
    """DeleteNodes expects one node per call and ignores the others."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        self.own(self.group(request.id), request.nodes)
        return await super().delete_nodes(pb.NodeGroupDeleteNodesRequest(id=request.id, nodes=request.nodes[:1]))


@fault("R50", "R16", "R52", "T4", "T3", check="stand_ins_are_deleted")
class FakeNodesAreNotDeleted(SoundServer):
    """DeleteNodes looks nodes up by name only, so it does not find those that the autoscaler makes up."""

    def own(self, group: Group, nodes: Sequence[pb.ExternalGrpcNode]) -> list[Machine]:
        for node in nodes:
            if node.name == node.providerID:
                raise Refusal(f"there is no node {node.name}", grpc.StatusCode.NOT_FOUND)
        return super().own(group, nodes)


@fault("R52", check="nodes_are_deleted_by_name")
class DeletesByProviderIdOnly(SoundServer):
    """DeleteNodes refuses a node that has no providerID yet."""

    def own(self, group: Group, nodes: Sequence[pb.ExternalGrpcNode]) -> list[Machine]:
        if not all(node.providerID for node in nodes):
            raise Refusal("a node has no providerID")
        return super().own(group, nodes)


@fault("R38", "R19", "T3", check="failed_machines_can_be_deleted", with_help=True)
class FailedMachinesAreNotDeleted(SoundServer):
    """DeleteNodes answers an error for a machine that could not be created."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for machine in self.own(self.group(request.id), request.nodes):
            if machine.error and self.world.is_out_of_stock:
                raise Refusal(f"the cloud knows no machine {machine.name}", grpc.StatusCode.NOT_FOUND)
        return await super().delete_nodes(request)


@fault("R54", "R6", "R7", "T7", check="deletion_answers_in_time", is_slow=True)
class DeletesInsideTheCall(SoundServer):
    """DeleteNodes answers when the machine is gone, which is after the autoscaler has given up."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        machines = self.own(self.group(request.id), request.nodes)
        is_news = any(machine.is_counted for machine in machines)
        answer = await super().delete_nodes(request)
        await asyncio.sleep(SLOW_SECONDS if is_news else 0.0)
        return answer


@fault("R49", "R89", "T6", "R53", check="deletions_may_come_at_the_same_time")
class ConcurrentDeletionsRace(_Miscounting):
    """DeleteNodes reads the target, waits for its database and writes it back, while other deletions do the same."""

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        group, falling = self.group(request.id), self.falling(request)
        written = self.target(group) - len(falling)
        await other_calls_go_first()
        answer = await super().delete_nodes(request)
        if falling:
            self.surplus[request.id] += written - self.target(group)
        return answer
