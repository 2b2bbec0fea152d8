"""Presents any externalgrpc server, of any age and in any language, as a Provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TypeVar

from google.protobuf.message import Message

from cloudgraft.client.cloud_config import CloudConfig
from cloudgraft.client.connection import Connection
from cloudgraft.sdk.common.event_loop import in_slices
from cloudgraft.sdk.errors import InternalError, InvalidArgumentError
from cloudgraft.sdk.provider import Provider
from cloudgraft.sdk.types import AutoscalingOptions, Instance, NodeGroup, NodeRef, NodeTemplate, Pod
from cloudgraft.wire import externalgrpc as wire
from cloudgraft.wire.pb import externalgrpc_pb2 as pb

_SLICE = 250  # instances converted before other tasks run
_Request = TypeVar("_Request", bound=Message)


class RemoteProvider(Provider):
    """A server behind a connection. Every method is one call; nothing is cached, retried or made up.

    Requests carry the old and the new fields, answers are read from whichever is there, so the age of the server does
    not matter. What a server does not implement raises UnsupportedError. Requests that cannot be put on the wire (a
    number beyond 32 bits, text that is no Unicode) raise InvalidArgumentError without a call.
    """

    def __init__(self, connection: Connection) -> None:
        """Takes ownership of the connection: :meth:`close` closes it."""
        self.connection = connection

    @staticmethod
    def connect(config: CloudConfig) -> RemoteProvider:
        """A provider for the server of that config; the first call dials."""
        return RemoteProvider(Connection(config))

    async def node_groups(self) -> Sequence[NodeGroup]:
        """NodeGroups."""
        answer = await self.connection.ask("NodeGroups", pb.NodeGroupsRequest(), pb.NodeGroupsResponse)
        return [wire.node_group_from_pb(group) for group in answer.nodeGroups]

    async def node_group_for_node(self, node: NodeRef) -> NodeGroup | None:
        """NodeGroupForNode; no group or an empty id is None (R17)."""
        request = _request(lambda: pb.NodeGroupForNodeRequest(node=wire.node_ref_to_pb(node)))
        answer = await self.connection.ask("NodeGroupForNode", request, pb.NodeGroupForNodeResponse)
        return wire.node_group_from_pb(answer.nodeGroup) if answer.nodeGroup.id else None

    async def target_size(self, group: str) -> int:
        """NodeGroupTargetSize."""
        request = _request(lambda: pb.NodeGroupTargetSizeRequest(id=group))
        return (await self.connection.ask("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse)).targetSize

    async def instances(self, group: str) -> Sequence[Instance]:
        """NodeGroupNodes."""
        request = _request(lambda: pb.NodeGroupNodesRequest(id=group))
        answer = await self.connection.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse)
        instances: list[Instance] = []
        async for some in in_slices(answer.instances, _SLICE):
            instances += [wire.instance_from_pb(message) for message in some]
        return instances

    async def increase_size(self, group: str, delta: int) -> None:
        """NodeGroupIncreaseSize."""
        request = _request(lambda: pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta))
        await self.connection.ask("NodeGroupIncreaseSize", request, pb.NodeGroupIncreaseSizeResponse)

    async def delete_nodes(self, group: str, nodes: Sequence[NodeRef]) -> None:
        """NodeGroupDeleteNodes."""
        request = _request(
            lambda: pb.NodeGroupDeleteNodesRequest(id=group, nodes=[wire.node_ref_to_pb(node) for node in nodes])
        )
        await self.connection.ask("NodeGroupDeleteNodes", request, pb.NodeGroupDeleteNodesResponse)

    async def decrease_target_size(self, group: str, delta: int) -> None:
        """NodeGroupDecreaseTargetSize."""
        request = _request(lambda: pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta))
        await self.connection.ask("NodeGroupDecreaseTargetSize", request, pb.NodeGroupDecreaseTargetSizeResponse)

    async def refresh(self) -> None:
        """Calls Refresh, after loading certificates that were replaced on disk."""
        self.connection.reload_certificates()
        await self.connection.ask("Refresh", pb.RefreshRequest(), pb.RefreshResponse)

    async def cleanup(self) -> None:
        """Cleanup."""
        await self.connection.ask("Cleanup", pb.CleanupRequest(), pb.CleanupResponse)

    async def template(self, group: str) -> NodeTemplate:
        """NodeGroupTemplateNodeInfo; an answer without a node, which crashes the autoscaler (R65), is an error."""
        template = await self.find_template(group)
        if template is None:
            raise InternalError(f"{self.connection.config.address} answered with an empty template for group {group!r}")
        return template

    async def find_template(self, group: str) -> NodeTemplate | None:
        """NodeGroupTemplateNodeInfo; None for an answer without a node, as the Go client has it."""
        request = _request(lambda: pb.NodeGroupTemplateNodeInfoRequest(id=group))
        rpc = "NodeGroupTemplateNodeInfo"
        answer = await self.connection.ask(rpc, request, pb.NodeGroupTemplateNodeInfoResponse)
        if not answer.nodeBytes and not answer.nodeInfo:
            return None
        try:
            return wire.template_from_pb(answer)
        except InvalidArgumentError as error:  # not our argument: the server's answer is invalid
            address = self.connection.config.address
            raise InternalError(f"the template of group {group!r} from {address}: {error.message}") from error

    async def options(self, group: str, defaults: AutoscalingOptions) -> AutoscalingOptions | None:
        """NodeGroupGetOptions, with every duration of the defaults in both encodings; no options is None (R73)."""
        request = _request(
            lambda: pb.NodeGroupAutoscalingOptionsRequest(id=group, defaults=wire.options_to_pb(defaults))
        )
        answer = await self.connection.ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)
        if not answer.HasField("nodeGroupAutoscalingOptions"):
            return None
        return wire.options_from_pb(answer.nodeGroupAutoscalingOptions)

    async def node_price(self, node: NodeRef, start: datetime, end: datetime) -> float:
        """PricingNodePrice, with the period in both pairs of fields."""
        request = _request(lambda: wire.price_request_to_pb(node, start, end))
        return (await self.connection.ask("PricingNodePrice", request, pb.PricingNodePriceResponse)).price

    async def pod_price(self, pod: Pod, start: datetime, end: datetime) -> float:
        """PricingPodPrice, with the pod in both fields and the period in both pairs."""
        request = _request(lambda: wire.pod_price_request_to_pb(pod, start, end))
        return (await self.connection.ask("PricingPodPrice", request, pb.PricingPodPriceResponse)).price

    async def gpu_label(self) -> str:
        """GPULabel."""
        return (await self.connection.ask("GPULabel", pb.GPULabelRequest(), pb.GPULabelResponse)).label

    async def gpu_types(self) -> Collection[str]:
        """GetAvailableGPUTypes; only the names carry meaning (R80)."""
        rpc, request = "GetAvailableGPUTypes", pb.GetAvailableGPUTypesRequest()
        return frozenset((await self.connection.ask(rpc, request, pb.GetAvailableGPUTypesResponse)).gpuTypes)

    async def close(self) -> None:
        """Closes the connection."""
        await self.connection.close()


def _request(build: Callable[[], _Request]) -> _Request:
    try:
        return build()
    except (ValueError, TypeError) as error:  # what protobuf raises for a value that its field cannot hold
        raise InvalidArgumentError(f"the request cannot be sent: {error}") from error
