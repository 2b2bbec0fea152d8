"""A service over the provider in memory."""

from __future__ import annotations

from google.protobuf.message import Message

from cloudgraft.service import Call, CloudProviderService
from cloudgraft.testing import MemoryGroup, MemoryOptions, MemoryProvider
from cloudgraft.wire.externalgrpc import RPCS
from cloudgraft.wire.pb import externalgrpc_pb2 as pb


class Bench:
    """A service over the provider in memory, with calls in one line."""

    def __init__(self, deadline: float = 30.0) -> None:
        self.provider = MemoryProvider(
            MemoryOptions(
                groups=[
                    MemoryGroup(id="small", max_size=5, hourly_price=0.5, cpu="2"),
                    MemoryGroup(id="large", min_size=1, max_size=3, hourly_price=2.0, cpu="4"),
                ]
            )
        )
        self.service = CloudProviderService(self.provider, deadline=deadline)

    async def call(self, rpc: str, request: Message | None = None, call: Call | None = None) -> Message:
        return await self.service.handle(rpc, request or RPCS[rpc].request(), call or Call())

    async def target(self, group: str = "small") -> int:
        answer = await self.call("NodeGroupTargetSize", pb.NodeGroupTargetSizeRequest(id=group))
        assert isinstance(answer, pb.NodeGroupTargetSizeResponse)
        return answer.targetSize

    async def increase(self, delta: int, group: str = "small") -> None:
        await self.call("NodeGroupIncreaseSize", pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta))

    async def delete(self, *ids: str, group: str = "small") -> None:
        nodes = [pb.ExternalGrpcNode(name=id_, providerID=id_) for id_ in ids]
        await self.call("NodeGroupDeleteNodes", pb.NodeGroupDeleteNodesRequest(id=group, nodes=nodes))

    async def decrease(self, delta: int, group: str = "small") -> None:
        await self.call("NodeGroupDecreaseTargetSize", pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta))

    async def group_of(self, name: str = "", provider_id: str = "") -> str:
        node = pb.ExternalGrpcNode(name=name, providerID=provider_id)
        answer = await self.call("NodeGroupForNode", pb.NodeGroupForNodeRequest(node=node))
        assert isinstance(answer, pb.NodeGroupForNodeResponse)
        return answer.nodeGroup.id

    async def nodes(self, group: str = "small") -> dict[str, int]:
        answer = await self.call("NodeGroupNodes", pb.NodeGroupNodesRequest(id=group))
        assert isinstance(answer, pb.NodeGroupNodesResponse)
        return {instance.id: instance.status.instanceState for instance in answer.instances}
