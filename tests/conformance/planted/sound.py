"""A server without a mistake, as small as one can be: the 15 calls over a dict. Every planted fault bends one of them.

It speaks the protocol's messages directly and uses nothing of cloudgraft's own server, which would not let most of the
mistakes through.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import grpc

from cloudgraft.sdk.pod_requests import pod_requests
from cloudgraft.sdk.quantity import Quantity
from cloudgraft.sdk.template_nodes import group_of_template
from cloudgraft.sdk.types import NodeTemplate
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.kubernetes import encode_node
from cloudgraft.wire.pb import externalgrpc_pb2 as pb
from tests.conformance.planted.world import Group, Machine, World

RUNNING, CREATING, DELETING = (
    pb.InstanceStatus.instanceRunning,
    pb.InstanceStatus.instanceCreating,
    pb.InstanceStatus.instanceDeleting,
)


class Refusal(Exception):  # noqa: N818 - the answer of a call, not a failure of the server
    """The call is answered with a status other than OK."""

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class SoundServer:
    """Keeps the whole contract."""

    def __init__(self, world: World) -> None:
        """A server that has just been started; what it knows is what its world kept."""
        self.world = world
        self.heard: deque[str] = deque(maxlen=2)  # the two calls before this one

    # -- the provider as a whole -------------------------------------------------------------------------------------

    async def refresh(self, request: pb.RefreshRequest) -> pb.RefreshResponse:
        return pb.RefreshResponse()

    async def cleanup(self, request: pb.CleanupRequest) -> pb.CleanupResponse:
        return pb.CleanupResponse()

    async def gpu_label(self, request: pb.GPULabelRequest) -> pb.GPULabelResponse:
        return pb.GPULabelResponse(label="")

    async def gpu_types(self, request: pb.GetAvailableGPUTypesRequest) -> pb.GetAvailableGPUTypesResponse:
        return pb.GetAvailableGPUTypesResponse()

    async def groups(self, request: pb.NodeGroupsRequest) -> pb.NodeGroupsResponse:
        return pb.NodeGroupsResponse(nodeGroups=[group_message(group) for group in self.world.groups])

    async def group_for_node(self, request: pb.NodeGroupForNodeRequest) -> pb.NodeGroupForNodeResponse:
        machine = self.find(request.node)
        if machine is None:
            return pb.NodeGroupForNodeResponse()
        return pb.NodeGroupForNodeResponse(nodeGroup=group_message(self.group(machine.group)))

    async def node_price(self, request: pb.PricingNodePriceRequest) -> pb.PricingNodePriceResponse:
        machine = self.find(request.node)
        name = machine.group if machine else group_of_template(request.node.name, {g.id for g in self.world.groups})
        if not name:
            raise Refusal(f"no price is known for {request.node.name}", grpc.StatusCode.NOT_FOUND)
        return pb.PricingNodePriceResponse(price=self.group(name).hourly_price * hours(request))

    async def pod_price(self, request: pb.PricingPodPriceRequest) -> pb.PricingPodPriceResponse:
        cores = pod_requests(wire.pod_from_pb(request)).get("cpu", Quantity(0))
        return pb.PricingPodPriceResponse(price=0.01 * float(cores) * hours(request))

    # -- one group ---------------------------------------------------------------------------------------------------

    async def target_size(self, request: pb.NodeGroupTargetSizeRequest) -> pb.NodeGroupTargetSizeResponse:
        return pb.NodeGroupTargetSizeResponse(targetSize=self.target(self.group(request.id)))

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        group = self.group(request.id)
        return pb.NodeGroupNodesResponse(instances=[self.instance(machine) for machine in self.world.of(group.id)])

    async def increase_size(self, request: pb.NodeGroupIncreaseSizeRequest) -> pb.NodeGroupIncreaseSizeResponse:
        group = self.group(request.id)
        if request.delta <= 0:
            raise Refusal(f"cannot grow by {request.delta}")
        if self.target(group) + request.delta > group.max_size:
            raise Refusal(f"{group.id} has a maximum of {group.max_size}")
        for _ in range(request.delta):
            self.world.order(group.id)
        return pb.NodeGroupIncreaseSizeResponse()

    async def delete_nodes(self, request: pb.NodeGroupDeleteNodesRequest) -> pb.NodeGroupDeleteNodesResponse:
        for machine in self.own(self.group(request.id), request.nodes):
            self.world.delete(machine)
        return pb.NodeGroupDeleteNodesResponse()

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        """Every order is listed at once, so it exists: nothing can be given back (R62)."""
        self.group(request.id)
        if request.delta >= 0:
            raise Refusal(f"cannot shrink by {request.delta}")
        return pb.NodeGroupDecreaseTargetSizeResponse()

    async def template(self, request: pb.NodeGroupTemplateNodeInfoRequest) -> pb.NodeGroupTemplateNodeInfoResponse:
        node = encode_node(self.node_template(self.group(request.id)))
        return pb.NodeGroupTemplateNodeInfoResponse(nodeInfo=node, nodeBytes=node)

    async def options(self, request: pb.NodeGroupAutoscalingOptionsRequest) -> pb.NodeGroupAutoscalingOptionsResponse:
        self.group(request.id)
        return pb.NodeGroupAutoscalingOptionsResponse()

    # -- what the calls are made of ----------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        for group in self.world.groups:
            if group.id == name:
                return group
        raise Refusal(f"there is no group {name!r}", grpc.StatusCode.NOT_FOUND)

    def target(self, group: Group) -> int:
        return sum(machine.is_counted for machine in self.world.of(group.id))

    def find(self, node: pb.ExternalGrpcNode) -> Machine | None:
        """By providerID, else by name; machines that are gone count too, their nodes may be there yet (R24, R56)."""
        if node.providerID:
            return self.world.machines.get(node.providerID)
        return next((machine for machine in self.world.machines.values() if machine.name == node.name), None)

    def own(self, group: Group, nodes: Sequence[pb.ExternalGrpcNode]) -> list[Machine]:
        """The machines of these nodes, or a refusal if one of them is not of the group (R52)."""
        machines = []
        for node in nodes:
            machine = self.find(node)
            if machine is None or machine.group != group.id:
                raise Refusal(f"{node.name or node.providerID} is not in {group.id}")
            machines.append(machine)
        return machines

    def instance(self, machine: Machine) -> pb.Instance:
        message = pb.Instance(id=machine.id)
        message.status.instanceState = RUNNING if machine.is_running else CREATING
        if not machine.is_counted:
            message.status.instanceState = DELETING
        elif machine.error:
            message.status.errorInfo.errorCode = machine.error
            message.status.errorInfo.errorMessage = "the cloud has no more of these"
            message.status.errorInfo.instanceErrorClass = 1
        return message

    def node_template(self, group: Group) -> NodeTemplate:
        resources = {"cpu": Quantity(4), "memory": Quantity("16Gi"), "pods": Quantity(110)}
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "4c16g",
            "topology.kubernetes.io/zone": "here-1",
            "topology.kubernetes.io/region": "here",
            "pool": group.id,
        }
        return NodeTemplate(labels=labels, capacity=resources, allocatable=resources)


class PatientServer(SoundServer):
    """Another server without a mistake: it lists a machine once its cloud does, and can cancel an order before."""

    def is_ordered_only(self, machine: Machine) -> bool:
        """Whether the cloud does not list it yet. It goes by the number of looks, so that no test goes by the time."""
        return machine.looks < 4 and not machine.error and machine.is_counted

    def instance(self, machine: Machine) -> pb.Instance:
        message = super().instance(machine)
        if machine.is_counted and machine.looks < 6:
            message.status.instanceState = CREATING
        return message

    async def nodes(self, request: pb.NodeGroupNodesRequest) -> pb.NodeGroupNodesResponse:
        answer = pb.NodeGroupNodesResponse()
        for machine in self.world.of(self.group(request.id).id):
            machine.looks += not self.world.is_stalled
            if not self.is_ordered_only(machine):
                answer.instances.append(self.instance(machine))
        return answer

    async def decrease_target(
        self, request: pb.NodeGroupDecreaseTargetSizeRequest
    ) -> pb.NodeGroupDecreaseTargetSizeResponse:
        group = self.group(request.id)
        if request.delta >= 0:
            raise Refusal(f"cannot shrink by {request.delta}")
        orders = [machine for machine in self.world.of(group.id) if self.is_ordered_only(machine)]
        for machine in orders[request.delta :]:
            del self.world.machines[machine.id]
        return pb.NodeGroupDecreaseTargetSizeResponse()


def group_message(group: Group) -> pb.NodeGroup:
    return pb.NodeGroup(id=group.id, minSize=group.min_size, maxSize=group.max_size, debug=f"planted {group.id}")


def hours(request: pb.PricingNodePriceRequest | pb.PricingPodPriceRequest) -> float:
    start, end = wire.period_from_pb(request)
    return (end - start).total_seconds() / 3600


async def other_calls_go_first() -> None:
    """Gives way as any wait for a database or a cloud would, for long enough that other calls come in between."""
    await asyncio.sleep(0.02)
