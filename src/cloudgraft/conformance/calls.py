"""The 15 calls with values instead of messages. Each gives an :class:`~cloudgraft.conformance.probe.Answer`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from google.protobuf.message import Message

from cloudgraft.conformance.probe import Answer, Probe
from cloudgraft.conformance.releases import Options, Release
from cloudgraft.sdk.types import InstanceState, NodeGroup, NodeRef, Pod
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

__all__ = ["Calls", "Listed"]

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An instance exactly as the server lists it, nonsense included."""

    id: str
    state: int
    has_error: bool
    code: str
    message: str
    error_class: int

    @property
    def is_deleting(self) -> bool:
        """On its way out: it does not count any more."""
        return self.state == InstanceState.DELETING.value

    @property
    def is_creating(self) -> bool:
        """Not there yet."""
        return self.state == InstanceState.CREATING.value

    @property
    def is_failed(self) -> bool:
        """The only form of an error that the autoscaler acts on (R34)."""
        return self.is_creating and self.has_error and self.code != ""


class Calls:
    """The calls of one release over one probe."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    @property
    def release(self) -> Release:
        """As which release they are made."""
        return self.probe.release

    def as_release(self, release: Release) -> Calls:
        """The same calls as another release would make them."""
        return Calls(self.probe.as_release(release))

    # -- the server as a whole ---------------------------------------------------------------------------------------

    async def node_groups(self) -> Answer[tuple[NodeGroup, ...]]:
        """All groups, in the server's order."""
        answer = await self._ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse)
        return answer.map(lambda found: tuple(map(wire.node_group_from_pb, found.nodeGroups)))

    async def group_for_node(self, node: NodeRef) -> Answer[NodeGroup]:
        """The group of a node; one without an id for "not managed"."""
        request = pb.NodeGroupForNodeRequest(node=wire.node_ref_to_pb(node))
        answer = await self._ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return answer.map(lambda found: wire.node_group_from_pb(found.nodeGroup))

    async def refresh(self) -> Answer[Message]:
        """The beginning of a loop."""
        return await self.probe.call("Refresh", pb.RefreshRequest())

    async def cleanup(self) -> Answer[Message]:
        """The autoscaler goes away."""
        return await self.probe.call("Cleanup", pb.CleanupRequest())

    async def gpu_label(self) -> Answer[str]:
        """The label that tells a GPU node."""
        answer = await self._ask("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse)
        return answer.map(lambda found: found.label)

    async def gpu_types(self) -> Answer[frozenset[str]]:
        """The kinds of GPUs."""
        answer = await self._ask(
            "GetAvailableGPUTypes", pb.GetAvailableGPUTypesRequest(), pb.GetAvailableGPUTypesResponse
        )
        return answer.map(lambda found: frozenset(found.gpuTypes))

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> Answer[float]:
        """What a node costs for a period."""
        request = self.release.node_price_request(node, start, end)
        answer = await self._ask("PricingNodePrice", request, pb.PricingNodePriceResponse)
        return answer.map(lambda found: found.price)

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> Answer[float]:
        """What a pod costs for a period."""
        request = self.release.pod_price_request(pod, start, end)
        answer = await self._ask("PricingPodPrice", request, pb.PricingPodPriceResponse)
        return answer.map(lambda found: found.price)

    # -- one group ---------------------------------------------------------------------------------------------------

    async def target(self, group: str) -> Answer[int]:
        """NodeGroupTargetSize."""
        request = pb.NodeGroupTargetSizeRequest(id=group)
        answer = await self._ask("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse)
        return answer.map(lambda found: found.targetSize)

    async def instances(self, group: str) -> Answer[tuple[Listed, ...]]:
        """NodeGroupNodes."""
        answer = await self._ask("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group), pb.NodeGroupNodesResponse)
        return answer.map(lambda found: tuple(map(_listed, found.instances)))

    async def increase(self, group: str, delta: int) -> Answer[Message]:
        """NodeGroupIncreaseSize."""
        return await self.probe.call("NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta))

    async def delete(self, group: str, nodes: Sequence[NodeRef]) -> Answer[Message]:
        """NodeGroupDeleteNodes."""
        return await self.probe.call("NodeGroupDeleteNodes", delete_request(group, nodes))

    async def decrease(self, group: str, delta: int) -> Answer[Message]:
        """NodeGroupDecreaseTargetSize."""
        request = pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta)
        return await self.probe.call("NodeGroupDecreaseTargetSize", request)

    async def template(self, group: str) -> Answer[pb.NodeGroupTemplateNodeInfoResponse]:
        """NodeGroupTemplateNodeInfo, to be read by one release or another."""
        request = pb.NodeGroupTemplateNodeInfoRequest(id=group)
        return await self._ask("NodeGroupTemplateNodeInfo", request, pb.NodeGroupTemplateNodeInfoResponse)

    async def options(self, group: str, defaults: Options) -> Answer[pb.NodeGroupAutoscalingOptionsResponse]:
        """NodeGroupGetOptions with the defaults in this release's fields, to be read by the same release."""
        request = self.release.options_request(group, defaults)
        return await self._ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)

    async def _ask(self, rpc: str, request: Message, kind: type[_M]) -> Answer[_M]:
        def typed(message: Message) -> _M:
            assert isinstance(message, kind)  # noqa: S101 - both come from the same table
            return message

        return (await self.probe.call(rpc, request)).map(typed)


def delete_request(group: str, nodes: Sequence[NodeRef]) -> pb.NodeGroupDeleteNodesRequest:
    """The message of a deletion."""
    return pb.NodeGroupDeleteNodesRequest(id=group, nodes=[wire.node_ref_to_pb(node) for node in nodes])


def _listed(message: pb.Instance) -> Listed:
    info = message.status.errorInfo
    return Listed(
        id=message.id,
        state=message.status.instanceState,
        has_error=message.status.HasField("errorInfo") and info.ByteSize() > 0,
        code=info.errorCode,
        message=info.errorMessage,
        error_class=info.instanceErrorClass,
    )
