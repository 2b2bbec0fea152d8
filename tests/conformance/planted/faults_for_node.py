"""Mistakes in NodeGroupForNode."""

from __future__ import annotations

import grpc

from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.fault import fault
from tests.conformance.planted.sound import Refusal, SoundServer, group_message
from tests.conformance.planted.world import FOREVER, Machine, World


class _Selective(SoundServer):
    """Answers for some nodes of its own only, in NodeGroupForNode and nowhere else."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return True

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        machine = self.find(request.node)
        if machine is None or not self.knows(request.node, machine):
            return pb.NodeGroupForNodeResponse()
        return await super().group_for_node(request)


@fault("R17", "R21", "T8", check="foreign_nodes_belong_to_no_group")
class ForeignNodeIsAnError(SoundServer):
    """NodeGroupForNode of a node that it does not manage fails with "not found"."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        if self.find(request.node) is None:
            raise Refusal(f"no machine for {request.node.name}", grpc.StatusCode.NOT_FOUND)
        return await super().group_for_node(request)


@fault("R17", "T8", check="foreign_nodes_belong_to_no_group")
class EveryNodeIsMine(SoundServer):
    """NodeGroupForNode puts every node that it is asked about into its first group, the control plane included."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        if self.find(request.node) is None:
            return pb.NodeGroupForNodeResponse(nodeGroup=group_message(self.world.groups[0]))
        return await super().group_for_node(request)


@fault("R17", "R20", check="labels_make_no_node_ours")
class LabelsMakeANodeMine(SoundServer):
    """NodeGroupForNode goes by labels, so that a node of another cloud with the same labels is taken for its own."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        found = await super().group_for_node(request)
        given = {key: value for key, value in request.node.labels.items() if key != "kubernetes.io/hostname"}
        for group in self.world.groups:
            if given and not found.nodeGroup.id and given == dict(self.node_template(group).labels):
                found.nodeGroup.CopyFrom(group_message(group))
        return found


@fault("R30", "R16", "R20", "R22", "T2", check="registered_nodes_belong_to_their_group")
class MatchesByNameOnly(_Selective):
    """NodeGroupForNode looks at the node's name and not at its providerID."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return node.name in {machine.name, machine.id}


@fault("R22", "T8", check="fresh_nodes_are_found_by_name")
class MatchesByProviderIdOnly(_Selective):
    """NodeGroupForNode finds no node that has a name but no providerID yet."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return node.providerID == machine.id


@fault("R19", "T10", "R16", check="listed_instances_belong_to_their_group")
class OnlyRunningMachinesHaveAGroup(_Selective):
    """NodeGroupForNode does not know machines that are still being created, which here takes its time."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        world.boot_seconds = FOREVER

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return machine.is_running


@fault("R19", "T3", "T10", check="failed_machines_can_be_deleted", with_help=True)
class FailedMachinesHaveNoGroup(_Selective):
    """NodeGroupForNode does not know machines that could not be created."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return not machine.error


@fault("R24", "T10", check="deleted_nodes_keep_their_group")
class DeletingMachinesHaveNoGroup(_Selective):
    """NodeGroupForNode forgets a node as soon as its deletion is accepted."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return machine.is_counted


@fault("R16", "R19", "T10", check="listed_instances_belong_to_their_group")
class FakeNodesHaveNoGroup(_Selective):
    """NodeGroupForNode ignores the nodes that the autoscaler makes up for instances that never registered."""

    def knows(self, node: pb.ExternalGrpcNode, machine: Machine) -> bool:
        return node.name != machine.id


@fault("R23", "T2", check="the_answered_group_is_the_listed_one")
class OtherLimitsForANode(SoundServer):
    """NodeGroupForNode tells another min and max than NodeGroups."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        answer = await super().group_for_node(request)
        if answer.HasField("nodeGroup"):
            answer.nodeGroup.minSize, answer.nodeGroup.maxSize = 0, 100
        return answer


@fault("R18", "T2", "T10", check="the_answered_group_is_the_listed_one")
class UnlistedGroupForANode(SoundServer):
    """NodeGroupForNode answers an id that NodeGroups does not list."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        answer = await super().group_for_node(request)
        if answer.HasField("nodeGroup"):
            answer.nodeGroup.id = f"groups/{answer.nodeGroup.id}"
        return answer


@fault("T8", "R16", "R17", check="planned_nodes_are_no_error")
class TemplateNodeIsAnError(SoundServer):
    """NodeGroupForNode fails for the upcoming nodes of a simulated scale-up, which have no providerID."""

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        if request.node.name.startswith("template-node-for-"):
            raise Refusal(f"{request.node.name} has no providerID")
        return await super().group_for_node(request)
